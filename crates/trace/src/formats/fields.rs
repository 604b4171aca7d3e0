//! The fields of a line. Each is taken with its name, for errors.

use iofair_core::request::Operation;
use iofair_core::time::Nanos;
use iofair_core::unit::SECTOR_BYTES;

/// What is wrong with a line.
pub(super) type Fault = String;

/// The fields of a line that are not taken yet.
pub(super) struct Fields<'a> {
    line: &'a str,
    next: usize,
    comma: bool,
}

impl<'a> Fields<'a> {
    /// Fields between commas; white space and quotes around them do not count.
    pub(super) fn commas(line: &'a str) -> Self {
        Self { line, next: 0, comma: true }
    }
    /// Fields between white space.
    pub(super) fn spaces(line: &'a str) -> Self {
        Self { line, next: 0, comma: false }
    }
    /// The next field, if there is one.
    pub(super) fn optional(&mut self) -> Option<&'a str> {
        let rest = self.line.get(self.next..)?;
        if self.comma {
            let end = rest.find(',').unwrap_or(rest.len());
            self.next += end + 1;
            let field = rest[..end].trim();
            let inside = field.strip_prefix('"').and_then(|field| field.strip_suffix('"'));
            return Some(inside.map_or(field, str::trim));
        }
        let start = rest.find(|c: char| !c.is_whitespace())?;
        let rest = &rest[start..];
        let end = rest.find(char::is_whitespace).unwrap_or(rest.len());
        self.next += start + end;
        Some(&rest[..end])
    }
    /// Everything behind the fields that were taken.
    pub(super) fn rest(&self) -> &'a str {
        self.line.get(self.next..).unwrap_or_default()
    }
    /// The next field.
    pub(super) fn text(&mut self, name: &str) -> Result<&'a str, Fault> {
        let field = self.optional().filter(|field| !field.is_empty());
        field.ok_or_else(|| format!("the {name} is missing"))
    }
    /// A whole number.
    pub(super) fn number(&mut self, name: &str) -> Result<u64, Fault> {
        let text = self.text(name)?;
        number(name, text)
    }
    /// A number of sectors of 512 bytes, in bytes.
    pub(super) fn sectors(&mut self, name: &str) -> Result<u64, Fault> {
        bytes_of(name, self.text(name)?)
    }
    /// A time in units of `nanos`.
    pub(super) fn time(&mut self, name: &str, nanos: u64) -> Result<Nanos, Fault> {
        let text = self.text(name)?;
        let count = number(name, text)?;
        let time = count.checked_mul(nanos);
        time.map(Nanos).ok_or_else(|| format!("{name} `{text}`: too large"))
    }
    /// A time in seconds, with a fraction or without.
    pub(super) fn seconds(&mut self, name: &str) -> Result<Nanos, Fault> {
        let text = self.text(name)?;
        seconds_of(name, text)
    }
    /// Read or write.
    pub(super) fn direction(&mut self, name: &str) -> Result<Operation, Fault> {
        direction(name, self.text(name)?)
    }
    /// Refuses further fields.
    pub(super) fn end(&mut self) -> Result<(), Fault> {
        match self.optional() {
            Some(field) if !field.is_empty() => Err(format!("`{field}` is one field too many")),
            _ => Ok(()),
        }
    }
}

/// Read or write.
pub(super) fn direction(name: &str, text: &str) -> Result<Operation, Fault> {
    match text.to_ascii_lowercase().as_str() {
        "r" | "read" => Ok(Operation::Read),
        "w" | "write" => Ok(Operation::Write),
        _ => Err(format!("{name} `{text}`: neither a read nor a write")),
    }
}

pub(super) fn number(name: &str, text: &str) -> Result<u64, Fault> {
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if !is_number {
        return Err(format!("{name} `{text}`: not a whole number"));
    }
    text.parse().map_err(|_| format!("{name} `{text}`: too large"))
}

/// Why a number was refused, if it is one: it is too large.
fn refused(name: &str, text: &str, is_number: bool, wanted: &str) -> Fault {
    match is_number {
        _ if text.strip_prefix('-').is_some_and(is_digits) => format!("{name} `{text}`: negative"),
        true => format!("{name} `{text}`: too large"),
        false => format!("{name} `{text}`: not a {wanted}"),
    }
}

/// Whether these are digits, with a fraction or without.
fn is_digits(text: &str) -> bool {
    let digits = text.replacen('.', "", 1);
    !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit())
}

/// [`seconds`], or why not.
pub(super) fn seconds_of(name: &str, text: &str) -> Result<Nanos, Fault> {
    seconds(text).ok_or_else(|| refused(name, text, is_digits(text), "number of seconds"))
}

/// [`decimal`], or why not; `wanted` is what the text should be.
pub(super) fn decimal_of(name: &str, text: &str, unit: u64, wanted: &str) -> Result<u64, Fault> {
    let (number, exponent) = text.split_once(['e', 'E']).unwrap_or((text, "0"));
    let is_number = is_digits(number) && is_digits(exponent);
    decimal(text, unit).ok_or_else(|| refused(name, text, is_number, wanted))
}

/// Sectors of 512 bytes, in bytes.
pub(super) fn bytes_of(name: &str, sectors: &str) -> Result<u64, Fault> {
    let sectors = number(name, sectors)?;
    sectors.checked_mul(SECTOR_BYTES).ok_or_else(|| format!("{name} {sectors}: too large"))
}

/// What the kernel prints for a sector where there is none: -1 without a sign.
pub(super) const NO_SECTOR: &str = "18446744073709551615";

/// Offset and length in bytes of a first sector and a number of sectors. The completion of a flush has neither.
pub(super) fn range(first: &str, sectors: &str) -> Result<(u64, u64), Fault> {
    let length = bytes_of("number of sectors", sectors)?;
    let is_nowhere = length == 0 && first == NO_SECTOR;
    Ok((if is_nowhere { 0 } else { bytes_of("sector", first)? }, length))
}

/// Seconds as nanoseconds; digits beyond those are cut off.
fn seconds(text: &str) -> Option<Nanos> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if (whole.is_empty() && fraction.is_empty()) || !digits(whole) || !digits(fraction) {
        return None;
    }
    let whole: u64 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
    let mut nanos: u64 = 0;
    for index in 0..9 {
        let digit = fraction.as_bytes().get(index).map_or(0, |byte| byte - b'0');
        nanos = nanos * 10 + u64::from(digit);
    }
    whole.checked_mul(1_000_000_000)?.checked_add(nanos).map(Nanos)
}

/// A decimal number of units, as programs print it (`12`, `0.5`, `1.5e-05`), in the units' parts: `unit` of them are one.
/// Digits beyond those are cut off.
pub(super) fn decimal(text: &str, unit: u64) -> Option<u64> {
    let (number, exponent) = match text.split_once(['e', 'E']) {
        Some((number, exponent)) => (number, exponent.parse::<i32>().ok()?),
        None => (text, 0),
    };
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let digits = || whole.bytes().chain(fraction.bytes());
    // More digits than this do not fit into the result.
    let is_number = digits().next().is_some() && digits().all(|byte| byte.is_ascii_digit());
    if !is_number || number.len() > 32 {
        return None;
    }
    let digits = digits().fold(0_u128, |sum, digit| sum * 10 + u128::from(digit - b'0'));
    let power = exponent.checked_sub(fraction.len() as i32)?;
    let factor = 10_u128.checked_pow(power.unsigned_abs().min(38));
    let scaled = match power < 0 {
        // The fraction is cut off last, so nothing is lost before.
        true => mul_div(digits, u128::from(unit), factor?),
        false => digits.checked_mul(factor?)?.checked_mul(u128::from(unit)),
    };
    u64::try_from(scaled?).ok()
}

/// `a * b / c`, rounded down.
fn mul_div(a: u128, b: u128, c: u128) -> Option<u128> {
    let (whole, rest) = (a / c, a % c);
    let whole = whole.checked_mul(b)?;
    match rest.checked_mul(b) {
        Some(rest) => whole.checked_add(rest / c),
        // Less than a unit of the last digit is lost.
        None => whole.checked_add(rest / (c / b.max(1)).max(1)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: decimal numbers are exact. Method: by hand, in nanoseconds and sectors.
    #[test]
    fn decimals_are_exact() {
        for (text, unit, wanted) in [
            ("0.551706", 1_000_000_000, Some(551_706_000)),
            ("13.191135", 1_000_000, Some(13_191_135)),
            ("1.5e-05", 1_000_000_000, Some(15_000)),
            ("1e3", 1, Some(1000)),
            ("4096.0", 1, Some(4096)),
            ("1456135200.013118123", 1_000_000_000, Some(1_456_135_200_013_118_123)),
            ("128166372003061629", 100, Some(12_816_637_200_306_162_900)),
            ("18446744073709551615", 1, Some(u64::MAX)),
            ("18446744073709551616", 1, None),
            ("1e-400000000", 1, Some(0)),
            ("1e400000000", 1, None),
            ("1e99999999999", 1, None),
            ("-1", 1, None),
            (".", 1, None),
            ("", 1, None),
            ("1.2.3", 1, None),
        ] {
            assert_eq!(decimal(text, unit), wanted, "{text}");
        }
    }

    /// Goal: seconds are exact, and nothing else is taken for them. Method: by hand.
    #[test]
    fn seconds_are_exact() {
        for (text, nanos) in [
            ("0", 0),
            ("1.5", 1_500_000_000),
            (".000000001", 1),
            ("3.0000000019", 3_000_000_001),
            ("1456000000.123456", 1_456_000_000_123_456_000),
        ] {
            assert_eq!(seconds(text), Some(Nanos(nanos)), "{text}");
        }
        for bad in ["", ".", "-1", "1e3", "1.x", "99999999999", "1.2.3", "NaN"] {
            assert_eq!(seconds(bad), None, "{bad}");
        }
    }

    /// Goal: fields of both kinds, and errors that name them. Method: by hand.
    #[test]
    fn fields_have_names_in_errors() {
        let mut fields = Fields::commas("a, \"7\" ,,x");
        assert_eq!(fields.text("name"), Ok("a"));
        assert_eq!(fields.number("size"), Ok(7));
        assert_eq!(fields.number("offset"), Err("the offset is missing".into()));
        assert_eq!(fields.number("count"), Err("count `x`: not a whole number".into()));
        assert_eq!(fields.text("rest"), Err("the rest is missing".into()));
        let mut fields = Fields::spaces("  8,0\t 3 99999999999999999999 ");
        assert_eq!(fields.text("device"), Ok("8,0"));
        assert_eq!(fields.sectors("sector"), Ok(1536));
        assert_eq!(fields.number("size"), Err("size `99999999999999999999`: too large".into()));
        assert_eq!(fields.end(), Ok(()));
    }
}
