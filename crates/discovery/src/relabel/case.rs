//! Letter case as Go changes it: each character for itself, and into one character.

pub(super) fn lower(text: &str) -> String {
    text.chars().map(lower_one).collect()
}

pub(super) fn upper(text: &str) -> String {
    text.chars().map(upper_one).collect()
}

fn lower_one(character: char) -> char {
    match character {
        'İ' => 'i',
        _ => sole(character.to_lowercase()).unwrap_or(character),
    }
}

fn upper_one(character: char) -> char {
    // Greek letters with iota: capitals with it, of which the full mapping makes two letters.
    let distance = match character {
        'ᾀ'..='ᾇ' | 'ᾐ'..='ᾗ' | 'ᾠ'..='ᾧ' => 8,
        'ᾳ' | 'ῃ' | 'ῳ' => 9,
        _ => return sole(character.to_uppercase()).unwrap_or(character),
    };
    char::from_u32(character as u32 + distance).unwrap_or(character)
}

/// The only character. Of a letter that becomes several, Go keeps the letter.
fn sole(mut characters: impl Iterator<Item = char>) -> Option<char> {
    let first = characters.next();
    first.filter(|_| characters.next().is_none())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_change_one_by_one() {
        assert_eq!(lower("ÀΣ İǅ1"), "àσ iǆ1");
        assert_eq!(upper("àςß ŉᾳᾀ1"), "ÀΣß ŉᾼᾈ1");
    }
}
