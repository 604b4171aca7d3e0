//! Amounts: sectors and bytes, and how people write them.
//!
//! `MB` is 10^6, `MiB` is 2^20; a rate ends in `/s`; a time is a number with `ns`, `us`, `ms`, `s`,
//! `m`. Fractions are allowed (`1.5GiB`) and computed without floats.

use alloc::string::{String, ToString};
use core::fmt;
use core::ops::{Add, AddAssign, Sub, SubAssign};

use crate::time::Nanos;

/// Bytes in a sector.
pub const SECTOR_BYTES: u64 = 512;

/// A position on a drive or an amount of it, in sectors of 512 bytes.
///
/// Sums and differences that are no `u64` panic.
///
/// ```
/// use iofair_core::unit::{Sectors, parse_bytes, parse_rate};
///
/// assert_eq!(Sectors::from_kib(4), Sectors(8));
/// assert_eq!(Sectors::from_bytes_ceil(513).bytes(), 1024);
/// assert_eq!(parse_bytes("1.5MiB"), Ok(3 << 19));
/// assert_eq!(parse_rate("10MB/s"), Ok(10_000_000));
/// assert!(parse_rate("10MB").is_err());
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct Sectors(pub u64);

impl Sectors {
    /// None at all.
    pub const ZERO: Self = Self(0);

    /// Bytes as sectors, rounded up.
    #[must_use]
    pub const fn from_bytes_ceil(bytes: u64) -> Self {
        Self(bytes.div_ceil(SECTOR_BYTES))
    }
    /// `n` KiB.
    #[must_use]
    pub const fn from_kib(n: u64) -> Self {
        Self(n * 2)
    }
    /// The amount in bytes.
    #[must_use]
    pub const fn bytes(self) -> u64 {
        self.0 * SECTOR_BYTES
    }
    /// The distance between two positions, whichever is first.
    #[must_use]
    pub const fn distance(self, other: Self) -> Self {
        Self(self.0.abs_diff(other.0))
    }
}

impl Add for Sectors {
    type Output = Self;
    fn add(self, rhs: Self) -> Self {
        Self(self.0 + rhs.0)
    }
}
impl AddAssign for Sectors {
    fn add_assign(&mut self, rhs: Self) {
        self.0 += rhs.0;
    }
}
impl Sub for Sectors {
    type Output = Self;
    fn sub(self, rhs: Self) -> Self {
        Self(self.0 - rhs.0)
    }
}
impl SubAssign for Sectors {
    fn sub_assign(&mut self, rhs: Self) {
        self.0 -= rhs.0;
    }
}

/// Why a written amount was refused: what was read and what is allowed.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct UnitError {
    /// The text that was given.
    pub given: String,
    /// What would have been accepted.
    pub allowed: &'static str,
    /// Whether it has the right form, and is more than the largest amount, which `allowed` tells then.
    pub is_too_large: bool,
}

impl fmt::Display for UnitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let wrong = if self.is_too_large { "is too large; allowed:" } else { "is not" };
        write!(f, "\"{}\" {wrong} {}", self.given, self.allowed)
    }
}
impl core::error::Error for UnitError {}

/// A number of bytes, displayed in the largest of `MB`, `kB` and `B` that is not above it, rounded down to two decimals:
/// `64.00 MB`, `1.50 kB`, `0 B`. [`parse_bytes`] reads what is displayed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Size(pub u64);

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (unit, bytes) = match self.0 {
            0..1_000 => return write!(f, "{} B", self.0),
            1_000..1_000_000 => ("kB", 1_000),
            _ => ("MB", 1_000_000),
        };
        write!(f, "{}.{:02} {unit}", self.0 / bytes, self.0 / (bytes / 100) % 100)
    }
}

/// A number of bytes, displayed in the largest of `TiB`, `GiB`, `MiB`, `KiB` and `B` that is not above it, rounded down to
/// one decimal unless it is a whole number: `10 GiB`, `1.5 MiB`, `512 B`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BinarySize(pub u64);

impl fmt::Display for BinarySize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = [("TiB", 40), ("GiB", 30), ("MiB", 20), ("KiB", 10)];
        let Some((unit, bits)) = units.into_iter().find(|(_, bits)| self.0 >> bits > 0) else {
            return write!(f, "{} B", self.0);
        };
        let (whole, rest) = (self.0 >> bits, self.0 & ((1 << bits) - 1));
        match rest {
            0 => write!(f, "{whole} {unit}"),
            rest => write!(f, "{whole}.{} {unit}", (rest * 10) >> bits),
        }
    }
}

/// A number of things, displayed with the noun in its singular or, with an `s`, in its plural: `1 volume`, `3 volumes`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Count<'a, N>(pub N, pub &'a str);

impl<N: fmt::Display + PartialEq + From<u8>> fmt::Display for Count<'_, N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let end = if self.0 == N::from(1) { "" } else { "s" };
        write!(f, "{} {}{end}", self.0, self.1)
    }
}

/// How amounts of a kind are written.
struct Form {
    units: &'static [(&'static str, u64)],
    allowed: &'static str,
    largest: &'static str,
}

const SIZE_UNITS: &[(&str, u64)] = &[
    ("", 1),
    ("B", 1),
    ("kB", 1_000),
    ("KB", 1_000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("TB", 1_000_000_000_000),
    ("PB", 1_000_000_000_000_000),
    ("EB", 1_000_000_000_000_000_000),
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("TiB", 1 << 40),
    ("PiB", 1 << 50),
    ("EiB", 1 << 60),
];
const SIZE: Form = Form {
    units: SIZE_UNITS,
    allowed: "a size such as \"4KiB\", \"1.5GiB\" or \"500MB\" (B, kB, MB, GB, TB, KiB, MiB, GiB, TiB)",
    largest: "at most 15EiB",
};
const RATE: Form = Form {
    units: SIZE_UNITS,
    allowed: "a rate such as \"10MB/s\" or \"400KiB/s\" (a size followed by /s)",
    largest: "at most 15EiB/s",
};
const TIME: Form = Form {
    units: &[
        ("ns", 1),
        ("us", 1_000),
        ("ms", 1_000_000),
        ("s", 1_000_000_000),
        ("m", 60_000_000_000),
    ],
    allowed: "a time such as \"8ms\" or \"1.5s\" (ns, us, ms, s, m)",
    largest: "at most 307445734m, which is 584 years",
};
const PERCENT: Form = Form {
    units: &[("", 100), ("%", 100)],
    allowed: "a percentage such as \"95\" or \"99.9%\"",
    largest: "at most 184467440737095516%",
};

/// Reads a size in bytes, such as `4KiB`; fractions of a byte are dropped.
///
/// # Errors
///
/// [`UnitError`] with the allowed form.
pub fn parse_bytes(text: &str) -> Result<u64, UnitError> {
    scaled(text, text, &SIZE)
}

/// Reads a rate in bytes a second, such as `10MB/s`.
///
/// # Errors
///
/// [`UnitError`] with the allowed form.
pub fn parse_rate(text: &str) -> Result<u64, UnitError> {
    match text.trim().strip_suffix("/s") {
        Some(size) => scaled(text, size, &RATE),
        None => Err(RATE.refuse(text)),
    }
}

/// Reads a time, such as `8ms`.
///
/// # Errors
///
/// [`UnitError`] with the allowed form.
pub fn parse_time(text: &str) -> Result<Nanos, UnitError> {
    scaled(text, text, &TIME).map(Nanos)
}

/// Reads a percentage in hundredths, such as `99.9`; what is finer is dropped.
///
/// # Errors
///
/// [`UnitError`] with the allowed form.
pub(crate) fn parse_percent(text: &str) -> Result<u64, UnitError> {
    scaled(text, text, &PERCENT)
}

impl Form {
    fn refuse(&self, given: &str) -> UnitError {
        UnitError { given: given.to_string(), allowed: self.allowed, is_too_large: false }
    }
    fn too_large(&self, given: &str) -> UnitError {
        UnitError { given: given.to_string(), allowed: self.largest, is_too_large: true }
    }
}

fn scaled(given: &str, text: &str, form: &Form) -> Result<u64, UnitError> {
    let refuse = || form.refuse(given);
    let text = text.trim();
    let split = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = (&text[..split], text[split..].trim());
    let scale = form.units.iter().find(|(name, _)| *name == unit).ok_or_else(refuse)?.1;
    let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
    if whole.is_empty() || fraction.is_empty() || fraction.len() > 9 {
        return Err(refuse());
    }
    let digits: u64 = fraction.parse().map_err(|_| refuse())?;
    let part = u128::from(digits) * u128::from(scale) / 10u128.pow(fraction.len() as u32);
    // It has digits only.
    let whole: u64 = whole.parse().map_err(|_| form.too_large(given))?;
    let total = u128::from(whole) * u128::from(scale) + part;
    u64::try_from(total).map_err(|_| form.too_large(given))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: nouns are in the number of what is counted. Method: none, one, more, in several types.
    #[test]
    fn counts_have_their_nouns() {
        let shown = [Count(0_u64, "volume"), Count(1, "volume"), Count(21, "volume")];
        let shown = shown.map(|count| alloc::format!("{count}"));
        assert_eq!(shown, ["0 volumes", "1 volume", "21 volumes"]);
        assert_eq!(
            alloc::format!("{} {}", Count(1_usize, "byte"), Count(1_u32, "run")),
            "1 byte 1 run"
        );
    }

    /// Goal: amounts read as people write them. Method: examples of every family.
    #[test]
    fn amounts_parse() {
        assert_eq!(parse_bytes("4KiB"), Ok(4096));
        assert_eq!(parse_bytes("1.5 GiB"), Ok(3 << 29));
        assert_eq!(parse_rate("10MB/s"), Ok(10_000_000));
        assert_eq!(parse_time("8ms"), Ok(Nanos::from_millis(8)));
        assert_eq!(parse_time("0.5s"), Ok(Nanos::from_millis(500)));
        assert_eq!((parse_percent("95"), parse_percent("99.95%")), (Ok(9500), Ok(9995)));
    }

    /// Goal: an amount is never displayed as zero unless it is, and what is displayed parses to the same text, at most a
    /// hundredth smaller. Method: the borders between units, and values around every power of ten.
    #[test]
    fn displayed_amounts_parse() {
        let exact = [
            (0, "0 B"),
            (1, "1 B"),
            (999, "999 B"),
            (1_000, "1.00 kB"),
            (999_999, "999.99 kB"),
            (1_000_000, "1.00 MB"),
            (12_345_678, "12.34 MB"),
        ];
        for (bytes, text) in exact {
            assert_eq!(Size(bytes).to_string(), text);
        }
        let binary = [(0, "0 B"), (1023, "1023 B"), (1 << 20, "1 MiB"), (3 << 29, "1.5 GiB")];
        for (bytes, text) in binary {
            assert_eq!(BinarySize(bytes).to_string(), text);
            assert_eq!(parse_bytes(text), Ok(bytes));
        }
        assert_eq!(BinarySize(u64::MAX).to_string(), "16777215.9 TiB");
        for power in 0..19 {
            for bytes in
                [10u64.pow(power) - 1, 10u64.pow(power), 10u64.pow(power) * 17 / 10, u64::MAX]
            {
                let text = Size(bytes).to_string();
                let read = parse_bytes(&text).unwrap();
                assert_eq!(Size(read).to_string(), text, "{bytes}");
                assert!(read <= bytes && bytes - read <= bytes / 100, "{bytes}: {text}");
                assert_eq!(parse_rate(&alloc::format!("{text}/s")), Ok(read));
            }
        }
    }

    /// Goal: invalid input is refused and the message says what is allowed. Method: one bad text a rule.
    #[test]
    fn invalid_input_is_refused() {
        for text in ["", "MB", "4 parsecs", "-1MB", "1.MB", "99999999999999TB", "1.2.3MB"] {
            assert!(parse_bytes(text).is_err(), "{text}");
        }
        let error = parse_rate("10MB").unwrap_err().to_string();
        assert!(error.contains("10MB") && error.contains("/s"), "{error}");
    }

    /// Goal: an amount that is too large is told so, with the largest that is read. Method: sizes at the border in every unit, and more
    /// digits than a number has; the largest.
    #[test]
    fn too_large_amounts_are_told() {
        assert_eq!((parse_bytes("10EiB"), parse_bytes("15EiB")), (Ok(10 << 60), Ok(15 << 60)));
        assert_eq!(parse_bytes("18446744073709551615"), Ok(u64::MAX));
        for text in
            ["18446744073709551616", "16EiB", "16384PiB", "19EB", "99999999999999999999999TB"]
        {
            let error = parse_bytes(text).unwrap_err();
            let wanted = alloc::format!("\"{text}\" is too large; allowed: at most 15EiB");
            assert!(error.is_too_large && error.to_string() == wanted, "{error}");
            assert!(parse_rate(&alloc::format!("{text}/s")).unwrap_err().is_too_large, "{text}");
        }
        assert!(parse_time("307445734m").is_ok() && parse_percent("184467440737095516%").is_ok());
        assert!(parse_time("307445735m").unwrap_err().is_too_large);
    }
}
