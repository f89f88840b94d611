use proptest::prelude::*;

use super::*;

proptest! {
    /// Every code of a table leads to its symbol, whatever follows it, and a joined entry gives the
    /// same as two lookups.
    #[test]
    fn a_table_has_every_code(splits in proptest::collection::vec(any::<u16>(), 1..287)) {
        let lengths = complete_code(&splits);
        let symbols = (0..lengths.len()).map(|symbol| LITERALS | (symbol as u32) << 16);
        let symbols: Vec<u32> = symbols.collect();
        let mut table = Box::new(Table::<4096>::EMPTY);
        prop_assert!(table.make(&lengths, &symbols).is_some());
        for (symbol, code) in codes(&lengths) {
            let length = u32::from(lengths[symbol]);
            for behind in [0, u64::MAX, 0x5a5a_5a5a_5a5a_5a5a] {
                let bits = code | behind << length;
                let (mut entry, mut taken) = (table.get(bits), 0);
                prop_assert_eq!(entry & SPECIAL != 0, length > 12);
                if entry & SPECIAL != 0 {
                    taken = entry & 31;
                    entry = table.get_following(entry, bits >> taken);
                }
                prop_assert_eq!((entry >> 16, taken + (entry & 31)), (symbol as u32, length));
            }
        }
    }

    #[test]
    fn lengths_that_leave_a_gap_or_overlap_make_no_table(
        splits in proptest::collection::vec(any::<u16>(), 1..200),
        which in any::<proptest::sample::Index>(),
    ) {
        let mut lengths = complete_code(&splits);
        let symbols = vec![LITERALS; lengths.len()];
        let mut table = Box::new(Table::<4096>::EMPTY);
        let at = which.index(lengths.len());
        let right = lengths[at];
        for wrong in (0..=15).filter(|length| *length != right) {
            lengths[at] = wrong;
            prop_assert!(table.make(&lengths, &symbols).is_none(), "{wrong} instead of {right}");
        }
    }
}

/// Lengths of a complete code, of which exactly one begins any bits: starts with two, and makes two
/// of one again and again.
fn complete_code(splits: &[u16]) -> Vec<u8> {
    let mut lengths = vec![1, 1];
    for split in splits {
        let at = usize::from(*split) % lengths.len();
        if lengths[at] < 15 {
            lengths[at] += 1;
            lengths.push(lengths[at]);
        }
    }
    lengths
}

/// Each symbol's code with its first bit lowest, by the algorithm of RFC 1951, 3.2.2.
fn codes(lengths: &[u8]) -> Vec<(usize, u64)> {
    let mut next = [0_u64; 17];
    for length in 1..=15 {
        let shorter = lengths.iter().filter(|other| usize::from(**other) == length).count() as u64;
        next[length + 1] = (next[length] + shorter) << 1;
    }
    let reversed = |code: u64, length: u8| code.reverse_bits() >> (64 - u32::from(length));
    let mut codes = Vec::new();
    for (symbol, length) in lengths.iter().enumerate() {
        let code = &mut next[usize::from(*length)];
        codes.push((symbol, reversed(*code, *length)));
        *code += 1;
    }
    codes
}

#[test]
fn entries_are_joined_where_both_fit() {
    let mut tables = Tables::new();
    fixed(&mut tables);
    // All literals of the fixed codes have at least eight bits: none fit in twos.
    assert!((0..4096).all(|bits| tables.literals.get(bits) & TWO == 0));
    // Lengths 3 and 4 have codes of seven bits, behind them five bits are too few for a literal.
    let mut lengths = [0; LITERAL_CODES_MAX];
    (lengths[usize::from(b'a')], lengths[usize::from(b'b')]) = (1, 2);
    (lengths[256], lengths[257]) = (3, 3);
    tables.make(&lengths, &[5; DISTANCE_CODES_MAX]).expect("any bits begin with one of them");
    let entry = tables.literals.get(0b0);
    assert_eq!((entry & TWO != 0, entry >> 16), (true, u32::from(b'a') << 8 | u32::from(b'a')));
    let entry = tables.literals.get(0b1110);
    assert_eq!(
        (entry & TWO != 0, entry & LITERALS, entry >> 24, entry & 31),
        (true, 0, u32::from(b'a'), 4)
    );
    let entry = tables.literals.get(0b0110);
    assert_eq!(
        (entry & TWO != 0, entry >> 16 & 0xff, entry & 31),
        (false, u32::from(b'a'), 1),
        "the end is never joined"
    );
}

fn fixed(tables: &mut Tables) {
    let mut literals = [8; LITERAL_CODES_MAX];
    literals[144..256].fill(9);
    literals[256..280].fill(7);
    tables.make(&literals, &[5; DISTANCE_CODES_MAX]).expect("any bits begin with one of them");
}
