//! Multiplication and division without overflow.

/// `value * times / parts`, rounded down, at most `u64::MAX`. A division of 128 bits takes several times as long as one of
/// 64, which is nearly always enough.
pub fn scale(value: u64, times: u64, parts: u64) -> u64 {
    if let Some(product) = value.checked_mul(times) {
        return product / parts;
    }
    let scaled = u128::from(value) * u128::from(times) / u128::from(parts);
    u64::try_from(scaled).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::scale;

    /// Goal: no overflow. Method: products of 64 bits and of more.
    #[test]
    fn products_may_be_longer_than_the_result() {
        assert_eq!(scale(7, 3, 2), 10);
        assert_eq!(scale(u64::MAX, 3, 4), u64::MAX / 4 * 3 + 2);
        assert_eq!(scale(u64::MAX, 2, 1), u64::MAX);
    }
}
