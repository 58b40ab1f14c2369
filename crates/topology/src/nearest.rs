//! The known name that is nearest to an unknown one, for messages that ask "did you mean …".

/// The candidate with the fewest edits from `name`, if they are few for its length.
pub(crate) fn nearest<'a>(name: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<String> {
    let edits_max = name.chars().count().div_ceil(3).max(1);
    let rated = candidates.into_iter().map(|candidate| (edits(name, candidate), candidate));
    let (_, best) = rated.filter(|(edits, _)| *edits <= edits_max).min()?;
    Some(best.to_owned())
}

/// Insertions, removals and replacements of a character that turn `from` into `to` (Levenshtein).
fn edits(from: &str, to: &str) -> usize {
    let to: Vec<char> = to.to_lowercase().chars().collect();
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for (place, letter) in from.to_lowercase().chars().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], place + 1);
        for (at, other) in to.iter().enumerate() {
            let replaced = diagonal + usize::from(letter != *other);
            diagonal = row[at + 1];
            row[at + 1] = replaced.min(row[at] + 1).min(diagonal + 1);
        }
    }
    row[to.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn misspelt_name_gets_the_one_that_was_meant_and_a_strange_one_none() {
        let known = ["orders", "sums", "sink"];
        assert_eq!(nearest("order", known).as_deref(), Some("orders"));
        assert_eq!(nearest("Sumss", known).as_deref(), Some("sums"));
        assert_eq!(nearest("customers", known), None);
        assert_eq!(nearest("", known), None);
    }

    #[test]
    fn edits_are_counted() {
        assert_eq!((edits("kitten", "sitting"), edits("", "abc"), edits("abc", "abc")), (3, 3, 0));
    }
}
