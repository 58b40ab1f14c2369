//! Where figures come from: when, by which version, on what machine, by what command.

use clock::{Clock, SystemClock};

use super::html::Origin;
use crate::report;

/// Of this process.
pub(super) fn of_this_run() -> Origin {
    Origin {
        date: date(SystemClock.unix_us() / 1_000_000),
        version: env!("CARGO_PKG_VERSION"),
        machine: report::hardware(),
        command: command(std::env::args()),
    }
}

/// `2026-11-25 10:00 UTC`. Days to a date as in Howard Hinnant's "chrono-compatible low-level date algorithms".
fn date(unix_s: u64) -> String {
    let days = unix_s / 86_400 + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    // From March on, so that a leap day is the last one.
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    let (hour, minute) = (unix_s / 3_600 % 24, unix_s / 60 % 60);
    format!("{year}-{month:02}-{day:02} {hour:02}:{minute:02} UTC")
}

/// As it was typed, about; without the passwords of addresses, for pages are passed on.
fn command(arguments: impl Iterator<Item = String>) -> String {
    let words = arguments.enumerate().map(|(index, word)| {
        let word = if index == 0 { return "evenkeel bench".to_owned() } else { masked(&word) };
        let is_plain = !word.is_empty()
            && word.chars().all(|it| it.is_ascii_alphanumeric() || "-_=/.,:@%+".contains(it));
        if is_plain { word } else { format!("'{}'", word.replace('\'', "'\\''")) }
    });
    words.collect::<Vec<_>>().join(" ")
}

/// `scheme://user:password@host` without the password.
fn masked(word: &str) -> String {
    let mut masked = String::new();
    let mut rest = word;
    while let Some(at) = rest.find("://") {
        let (before, behind) = rest.split_at(at + 3);
        masked.push_str(before);
        let authority = &behind[..behind.find(['/', '?', ',']).unwrap_or(behind.len())];
        rest = behind;
        if let Some(login) = authority.rfind('@').map(|end| &authority[..end])
            && let Some(colon) = login.find(':')
        {
            masked.push_str(&login[..colon]);
            masked.push_str(":***");
            rest = &behind[login.len()..];
        }
    }
    masked + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_the_calendar() {
        assert_eq!(date(0), "1970-01-01 00:00 UTC");
        assert_eq!(date(951_782_400), "2000-02-29 00:00 UTC");
        assert_eq!(date(1_795_600_859), "2026-11-25 10:00 UTC");
    }

    #[test]
    fn command_is_what_was_typed_without_passwords() {
        let typed = [
            "/usr/bin/evenkeel-bench",
            "map-test",
            "--url",
            "redis://u:s3:cr@et@h:1/0",
            "--note",
            "it's",
            "",
        ];
        let text = command(typed.into_iter().map(str::to_owned));
        assert_eq!(text, r"evenkeel bench map-test --url 'redis://u:***@h:1/0' --note 'it'\''s' ''");
        assert_eq!(masked("redis://h:1,postgres://a:b@c"), "redis://h:1,postgres://a:***@c");
    }
}
