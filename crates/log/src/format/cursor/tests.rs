use proptest::prelude::*;

use super::*;

fn with_checksum(mut slot: Vec<u8>) -> Vec<u8> {
    let checksum = checksum(&slot);
    (&mut slot[CHECKSUM_POSITION..]).put_u32_le(checksum);
    slot
}

#[test]
fn counts_that_do_not_fit_into_the_slot_are_damage_even_with_a_checksum_that_fits() {
    let state =
        CursorState { name: "name".to_owned(), resolved: vec![(5, 6)], ..CursorState::default() };
    for (at, bytes) in
        [(104, &[0xff, 0xff][..]), (106, &[0xff, 0xff]), (108, &[0xff, 0xff, 0xff, 0xff])]
    {
        let mut slot = encode_slot(&state, 1);
        slot[at..at + bytes.len()].copy_from_slice(bytes);
        assert_eq!(decode_slot(&with_checksum(slot)), Err(BlockError::Damaged), "at {at}");
    }
    let mut slot = encode_slot(&state, 1);
    let at = slot.len() - size_of::<u32>();
    (&mut slot[at..]).put_u32_le(1);
    assert_eq!(decode_slot(&with_checksum(slot)), Err(BlockError::Damaged));
    let mut slot = encode_slot(&state, 1);
    (&mut slot[12..]).put_u32_le(100);
    assert_eq!(decode_slot(&slot), Err(BlockError::Damaged));
}

#[test]
fn ranges_that_contradict_each_other_are_damage() {
    for resolved in
        [vec![(5, 5)], vec![(7, 6)], vec![(5, 9), (8, 10)], vec![(20, 21), (5, 6)], vec![(2, 4)]]
    {
        let state = CursorState { floor: 3, resolved, ..CursorState::default() };
        assert_eq!(
            decode_slot(&encode_slot(&state, 1)),
            Err(BlockError::Damaged),
            "{:?}",
            state.resolved
        );
    }
}

#[test]
fn a_list_round_trips_and_every_flipped_bit_is_found() {
    for names in [&[][..], &["a.cursor"], &["a.cursor", "b→c.cursor", "d.cursor.damaged-2"]] {
        let names: BTreeSet<String> = names.iter().map(|&name| name.to_owned()).collect();
        let bytes = encode_list(&names).into_bytes();
        assert_eq!(decode_list(&bytes), Ok(names));
        for bit in 0..bytes.len() * 8 {
            let mut damaged = bytes.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            // The spelling of the checksum is the only part that is not checked by it.
            let is_the_same = damaged.eq_ignore_ascii_case(&bytes);
            assert!(is_the_same || decode_list(&damaged).is_err(), "bit {bit}");
        }
        (0..bytes.len()).for_each(|len| assert!(decode_list(&bytes[..len]).is_err(), "{len}"));
    }
}

proptest! {
    #[test]
    fn arbitrary_bytes_are_no_slot(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        prop_assert!(decode_slot(&bytes).is_err());
        let mut slot = encode_slot(&CursorState::default(), 1);
        slot.extend_from_slice(&bytes);
        let len = slot.len() as u32;
        (&mut slot[12..]).put_u32_le(len);
        if let Some(&[names, dropped_ranges]) = bytes.first_chunk::<2>() {
            slot[104] = names;
            slot[106] = dropped_ranges;
        }
        // Whatever the bytes decode to, the call returns.
        let _ = decode_slot(&with_checksum(slot));
    }
}
