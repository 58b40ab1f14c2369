//! The known name that is nearest to an unknown one, for messages that ask "did you mean …".

/// The candidate with the fewest edits from `name`, if they are few for its length. A name that is far too long for one that was misspelt has none.
#[must_use]
pub fn nearest<'a>(name: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<String> {
    let length = name.chars().count();
    let edits_max = length.div_ceil(3).max(1);
    // Edits are counted in the product of both lengths.
    let may_be = |candidate: &&str| length <= CHARS_MAX && candidate.len() <= 4 * (length + edits_max);
    let rated = candidates.into_iter().filter(may_be).map(|candidate| (edits(name, candidate), candidate));
    let (_, best) = rated.filter(|(edits, _)| *edits <= edits_max).min()?;
    Some(best.to_owned())
}

/// Insertions, removals and replacements of a character that turn `from` into `to`.
fn edits(from: &str, to: &str) -> usize {
    strsim::levenshtein(&from.to_lowercase(), &to.to_lowercase())
}

/// Of a name that somebody may have misspelt.
const CHARS_MAX: usize = 200;

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
        let long = "x".repeat(500_000);
        assert_eq!(nearest(&long, [&long[1..]]), None, "this would take minutes");
        assert_eq!(nearest("x", [&*long]), None);
    }

    #[test]
    fn edits_are_counted() {
        assert_eq!((edits("kitten", "sitting"), edits("", "abc"), edits("abc", "abc")), (3, 3, 0));
    }
}
