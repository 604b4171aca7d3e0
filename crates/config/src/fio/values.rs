//! Values as fio writes them: numbers with units, times, lists for reads, writes and trims.

use iofair_core::time::Nanos;

use super::problems::Bad;

/// Most sizes of a `bssplit`, as in fio.
const SPLIT_MAX: usize = 64;
/// Most zones of a distribution, as in fio.
const ZONES_MAX: usize = 256;
/// Deepest parentheses of an expression.
const NESTING_MAX: u32 = 16;

/// Sizes of calls.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Blocks {
    /// All alike.
    Fixed(u64),
    /// Any multiple of the first up to the second, each as likely as the others.
    Range(u64, u64),
    /// Sizes and their percentages, which make 100.
    Split(Vec<(u64, u32)>),
}

impl Blocks {
    /// The smallest.
    pub fn least(&self) -> u64 {
        match self {
            Self::Fixed(size) | Self::Range(size, _) => *size,
            Self::Split(sizes) => sizes.iter().map(|size| size.0).min().unwrap_or(1),
        }
    }
    /// The largest.
    pub fn most(&self) -> u64 {
        match self {
            Self::Fixed(size) | Self::Range(_, size) => *size,
            Self::Split(sizes) => sizes.iter().map(|size| size.0).max().unwrap_or(1),
        }
    }
}

/// Where random calls go.
#[derive(Clone, PartialEq, Debug, Default)]
pub enum Distribution {
    /// Anywhere, each place as likely as the others.
    #[default]
    Random,
    /// The block of rank k with a probability of k to the power of minus theta.
    Zipf(f64),
    /// The part h of the blocks has the part 1 - h of the calls, and so on in each part.
    Pareto(f64),
    /// Around the middle, with this deviation in percent of the range.
    Normal(f64),
    /// Percent of the calls, and percent of the range that they go to.
    Zoned(Vec<(u32, u32)>),
}

/// A size, or a part of the target.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Size {
    /// Bytes.
    Bytes(u64),
    /// Percent of the target.
    Percent(u32),
}

type Read<T> = Result<T, Bad>;

/// A whole number with an optional unit: `4k`, `0x1000`, `8*1024`.
pub(super) fn number(text: &str, kb_base: u64) -> Read<u64> {
    let mut expression = Expression { rest: text.trim(), read: &|word| plain(word, kb_base) };
    expression.whole(text)
}

/// A number with a sign.
pub(super) fn signed(text: &str, kb_base: u64) -> Read<i64> {
    let digits = text.strip_prefix('-');
    let value = i64::try_from(number(digits.unwrap_or(text), kb_base)?);
    let value = value.map_err(|_| too_large(text, i64::MAX as u64))?;
    Ok(if digits.is_some() { -value } else { value })
}

/// A time; `unit` is that of a number without one, and an expression in parentheses is in microseconds.
pub(super) fn time(text: &str, unit: Nanos) -> Read<Nanos> {
    let unit = if text.trim().starts_with('(') { Nanos(1_000) } else { unit };
    let mut expression = Expression { rest: text.trim(), read: &|word| plain_time(word, unit) };
    Ok(Nanos(expression.whole(text)?))
}

fn plain(word: &str, kb_base: u64) -> Read<u64> {
    let allowed = "a whole number with a unit or none, such as 4096, 4k or 1g";
    let bad = || Bad::no_word(word, "number").allowed(allowed);
    let lower = word.to_ascii_lowercase();
    let (digits, radix) = match lower.strip_prefix("0x") {
        Some(rest) => (rest, 16),
        None => (lower.as_str(), 10),
    };
    let end = digits.find(|c: char| !c.is_digit(radix)).unwrap_or(digits.len());
    let (digits, unit) = digits.split_at(end);
    if digits.is_empty() {
        return Err(bad());
    }
    let value = u64::from_str_radix(digits, radix).map_err(|_| too_large(word, u64::MAX))?;
    let mut letters = unit.trim_start().chars();
    let power = match letters.next() {
        None => return Ok(value),
        Some('b') if letters.as_str().is_empty() => return Ok(value),
        Some('k') => 1,
        Some('m') => 2,
        Some('g') => 3,
        Some('t') => 4,
        Some('p') => 5,
        _ => return Err(bad()),
    };
    // To fio, `ki` without a `b` is `k`.
    let is_other_base = match letters.as_str() {
        "" | "b" | "i" => false,
        "ib" => true,
        _ => return Err(bad()),
    };
    // With 1024, the default, the units are the other way round than those of the SI.
    let base: u64 = if is_other_base != (kb_base == 1024) { 1024 } else { 1000 };
    value.checked_mul(base.pow(power)).ok_or_else(|| too_large(word, u64::MAX))
}

fn too_large(word: &str, most: u64) -> Bad {
    Bad::new(format!("`{word}` is too large")).allowed(format!("at most {most}"))
}

fn plain_time(word: &str, unit: Nanos) -> Read<u64> {
    let allowed = "a time such as 10s, 500ms, 20us or 2m";
    let bad = || Bad::no_word(word, "time").allowed(allowed);
    let lower = word.to_ascii_lowercase();
    let end = lower.find(|c: char| !c.is_ascii_digit()).unwrap_or(lower.len());
    let (digits, suffix) = lower.split_at(end);
    if digits.is_empty() {
        return Err(bad());
    }
    let longest = || Bad::new(format!("`{word}` is too long")).allowed("at most 584 years");
    let value: u64 = digits.parse().map_err(|_| longest())?;
    let nanos = match suffix {
        "" => unit.0,
        "d" => 86_400_000_000_000,
        "h" => 3_600_000_000_000,
        "m" => 60_000_000_000,
        "s" => 1_000_000_000,
        "ms" | "msec" => 1_000_000,
        "us" | "usec" => 1_000,
        _ => return Err(bad()),
    };
    value.checked_mul(nanos).ok_or_else(longest)
}

/// Numbers with operators between them.
struct Expression<'a> {
    rest: &'a str,
    read: &'a dyn Fn(&str) -> Read<u64>,
}

impl Expression<'_> {
    fn whole(&mut self, text: &str) -> Read<u64> {
        if self.rest.starts_with('-') {
            return Err(Bad::new(format!("`{text}` is negative")).allowed("positive numbers"));
        }
        let value = self.sum(0)?;
        match self.rest.is_empty() {
            true => Ok(value),
            false => {
                Err(Bad::no_word(text.trim(), "number").allowed("digits, a unit, and operators"))
            }
        }
    }
    fn takes(&mut self, operators: &[char]) -> Option<char> {
        let next = self.rest.chars().next().filter(|next| operators.contains(next))?;
        self.rest = self.rest[next.len_utf8()..].trim_start();
        Some(next)
    }
    fn sum(&mut self, depth: u32) -> Read<u64> {
        let mut value = self.product(depth)?;
        while let Some(operator) = self.takes(&['+', '-']) {
            let other = self.product(depth)?;
            value = calculated(operator, value, other)?;
        }
        Ok(value)
    }
    fn product(&mut self, depth: u32) -> Read<u64> {
        let mut value = self.operand(depth)?;
        while let Some(operator) = self.takes(&['*', '/', '%', '^']) {
            let other = self.operand(depth)?;
            value = calculated(operator, value, other)?;
        }
        Ok(value)
    }
    fn operand(&mut self, depth: u32) -> Read<u64> {
        if self.takes(&['(']).is_some() {
            if depth >= NESTING_MAX {
                let bad = Bad::new("too many parentheses");
                return Err(bad.allowed(format!("{NESTING_MAX} inside one another")));
            }
            let value = self.sum(depth + 1)?;
            return match self.takes(&[')']) {
                Some(_) => Ok(value),
                None => Err(Bad::new("a `)` is missing").allowed("one for each `(`")),
            };
        }
        let end = self.rest.find(['+', '-', '*', '/', '%', '^', '(', ')']);
        let (word, rest) = self.rest.split_at(end.unwrap_or(self.rest.len()));
        self.rest = rest;
        (self.read)(word.trim_end())
    }
}

fn calculated(operator: char, a: u64, b: u64) -> Read<u64> {
    let value = match operator {
        '+' => a.checked_add(b),
        '-' => a.checked_sub(b),
        '*' => a.checked_mul(b),
        '/' => a.checked_div(b),
        '%' => a.checked_rem(b),
        _ => u32::try_from(b).ok().and_then(|b| a.checked_pow(b)),
    };
    if operator == '-' && b > a {
        let bad = Bad::new(format!("{a} - {b} is negative"));
        return Err(bad.allowed("a number, not a range"));
    }
    let bad = || Bad::new(format!("{a} {operator} {b} is out of range"));
    value.ok_or_else(|| bad().allowed(format!("0 to {}", u64::MAX)))
}

/// `20%`, or a size.
pub(super) fn size(text: &str, kb_base: u64) -> Read<Size> {
    if text.strip_suffix(['z', 'Z']).is_some_and(|zones| zones.trim().parse::<u64>().is_ok()) {
        let bad =
            Bad::unsupported(format!("`{text}` is a number of zones, which are not modelled"));
        return Err(bad.allowed("bytes, percent, or the argument --ignore-unsupported"));
    }
    let Some(percent) = text.strip_suffix('%') else {
        return number(text, kb_base).map(Size::Bytes);
    };
    match percent.trim().parse() {
        Ok(0) => Ok(Size::Bytes(0)),
        Ok(percent @ 1..=100) => Ok(Size::Percent(percent)),
        _ => Err(Bad::new(format!("`{text}` is not a part of the target")).allowed("0% to 100%")),
    }
}

/// Values for reads, writes and trims: a value that no comma follows is also that of the directions after it.
pub(super) fn for_directions<T: Clone>(
    text: &str,
    now: &mut [T; 3],
    read: impl Fn(&str) -> Read<T>,
) -> Read<()> {
    let items: Vec<&str> = text.split(',').map(str::trim).collect();
    if items.len() > 4 || (items.len() == 4 && !items[3].is_empty()) {
        let bad = Bad::new("more than three values");
        return Err(bad.allowed("one for reads, writes and trims each, with commas between them"));
    }
    if items.iter().all(|item| item.is_empty()) {
        return Err(
            Bad::new(format!("`{text}` has no value")).allowed("one for a direction or more")
        );
    }
    let mut last = None;
    for (index, slot) in now.iter_mut().enumerate() {
        match items.get(index) {
            Some(&"") => last = None,
            Some(item) => {
                let value = read(item)?;
                *slot = value.clone();
                last = Some(value);
            }
            None => *slot = last.clone().unwrap_or_else(|| slot.clone()),
        }
    }
    Ok(())
}

/// Largest block.
const BLOCK_MAX: u64 = 1 << 30;

/// The size of all blocks of a direction; only the page cache takes what is no multiple of 512 ([`Settings::finish`]).
///
/// [`Settings::finish`]: super::settings::Settings::finish
pub(super) fn any_block(text: &str, kb_base: u64) -> Read<u64> {
    let is_plain = text.bytes().all(|byte| byte.is_ascii_digit());
    match number(text, kb_base)? {
        bytes @ 1..=BLOCK_MAX if is_plain => Ok(bytes),
        _ => block(text, kb_base),
    }
}

/// A block size: a multiple of 512 bytes, since the drive has sectors.
pub(super) fn block(text: &str, kb_base: u64) -> Read<u64> {
    let bytes = number(text, kb_base)?;
    let bad = |why: &str| {
        let bad = Bad::new(format!("a block of {bytes} bytes {why}"));
        Err(bad.allowed("multiples of 512 bytes, up to 1 GiB"))
    };
    match bytes {
        0 => bad("is none"),
        _ if bytes % 512 != 0 && kb_base == 1024 && text.to_ascii_lowercase().contains("ib") => {
            bad(
                "is no number of sectors of 512 bytes: KiB is 1000 bytes in fio, unless kb_base=1000",
            )
        }
        _ if bytes % 512 != 0 => bad("is no number of sectors of 512 bytes"),
        _ if bytes > BLOCK_MAX => bad("is longer than 1 GiB"),
        _ => Ok(bytes),
    }
}

/// `1k-4k` or `1k:4k`, in either order.
pub(super) fn range<T: Copy + PartialOrd>(
    text: &str,
    read: impl Fn(&str) -> Read<T>,
) -> Read<(T, T)> {
    let Some((low, high)) = text.split_once(['-', ':']) else {
        let one = read(text)?;
        return Ok((one, one));
    };
    let (low, high) = (read(low.trim())?, read(high.trim())?);
    Ok(if low <= high { (low, high) } else { (high, low) })
}

/// `4k/50:64k/50`; an empty percentage has its part of what is left of 100.
pub fn split(text: &str, kb_base: u64) -> Result<Blocks, String> {
    read_split(text, kb_base).map_err(Bad::into_message)
}

pub(super) fn read_split(text: &str, kb_base: u64) -> Read<Blocks> {
    let allowed = "SIZE/PERCENT:SIZE/PERCENT, such as 4k/60:64k/40";
    let mut sizes: Vec<(u64, Option<u32>)> = Vec::new();
    for item in text.split(':') {
        let (length, percent) = item.split_once('/').unwrap_or((item, ""));
        let percent = match percent.trim() {
            "" => None,
            written => match written.parse() {
                Ok(percent @ 0..=100) => Some(percent),
                _ => {
                    return Err(
                        Bad::new(format!("`{written}` is not a percentage")).allowed(allowed)
                    );
                }
            },
        };
        sizes.push((block(length.trim(), kb_base)?, percent));
    }
    if sizes.len() > SPLIT_MAX {
        let bad = Bad::new(format!("{} sizes", sizes.len()));
        return Err(bad.allowed(format!("{SPLIT_MAX} for each direction")));
    }
    let given: u32 = sizes.iter().filter_map(|size| size.1).sum();
    let open = sizes.iter().filter(|size| size.1.is_none()).count();
    if given > 100 || (open == 0 && given != 100) {
        return Err(Bad::new(format!("the percentages make {given}")).allowed("100"));
    }
    let mut rest = Shares::new(given, open);
    let shares =
        sizes.into_iter().map(|(size, percent)| (size, percent.unwrap_or_else(|| rest.next())));
    Ok(Blocks::Split(shares.filter(|share| share.1 > 0).collect()))
}

/// `zipf:1.2`, `zoned:60/10:40/90` and the others.
pub fn distribution(text: &str) -> Result<Distribution, String> {
    read_distribution(text).map_err(Bad::into_message)
}

pub(super) fn read_distribution(text: &str) -> Read<Distribution> {
    let allowed = "random, zipf:THETA, pareto:H, normal:PERCENT, zoned:CALLS/RANGE:...";
    let bad = |message: String| Err(Bad::new(message).allowed(allowed));
    if text.contains(',') {
        let message = "a distribution for each direction is not supported";
        return Err(Bad::unsupported(message).allowed(allowed));
    }
    let (kind, input) = text.split_once(':').unwrap_or((text, ""));
    let value = |default: f64, low: f64, high: f64| match input {
        "" => Ok(default),
        _ if input.contains(':') => {
            Err(Bad::unsupported("a center of the distribution is not supported").allowed(allowed))
        }
        _ => {
            match input.parse::<f64>() {
                Ok(value) if value > low && value < high => Ok(value),
                // fio drops what follows the number, and knows a center only after a colon.
                Err(_) => Err(Bad::no_word(input, "number")
                    .allowed("a number alone; a center is not supported")),
                _ => Err(Bad::new(format!("`{input}` is out of range for {kind}"))
                    .allowed(format!("more than {low} and less than {high}"))),
            }
        }
    };
    match kind {
        "random" if input.is_empty() => Ok(Distribution::Random),
        // fio's own defaults.
        "zipf" => match value(1.1, 0.0, 100.0)? {
            1.0 => bad("a theta of 1 is refused by fio, too; write 0.999 or 1.001".into()),
            theta => Ok(Distribution::Zipf(theta)),
        },
        "pareto" => Ok(Distribution::Pareto(value(0.2, 0.0, 1.0)?)),
        "normal" => Ok(Distribution::Normal(value(0.0, 0.0, 100.0)?)),
        "zoned" => zones(input),
        "zoned_abs" => Err(Bad::unsupported("zones of so many bytes").allowed(allowed)),
        _ => bad(format!("`{text}` is not a distribution")),
    }
}

/// Zones; those without a part of the range share what is left of it.
fn zones(text: &str) -> Read<Distribution> {
    let allowed = "zoned:PERCENT OF CALLS/PERCENT OF RANGE:..., each of the two making 100";
    let mut zones: Vec<(u32, Option<u32>)> = Vec::new();
    for item in text.split(':') {
        let pair = item.split_once('/').and_then(|(calls, range)| {
            let calls: u32 = calls.trim().parse().ok()?;
            let range: Option<u32> = match range.trim() {
                "" => None,
                range => Some(range.parse().ok()?),
            };
            (calls <= 100 && range.is_none_or(|range| (1..=100).contains(&range)))
                .then_some((calls, range))
        });
        let Some(pair) = pair else {
            return Err(Bad::new(format!("`{item}` is not a zone")).allowed(allowed));
        };
        zones.push(pair);
    }
    let given: u32 = zones.iter().filter_map(|zone| zone.1).sum();
    let mut shares = Shares::new(given, zones.iter().filter(|zone| zone.1.is_none()).count());
    let zones: Vec<(u32, u32)> = zones
        .into_iter()
        .map(|(calls, range)| (calls, range.unwrap_or_else(|| shares.next())))
        .collect();
    let sum = |of: fn(&(u32, u32)) -> u32| zones.iter().map(of).sum::<u32>();
    if zones.len() > ZONES_MAX || sum(|zone| zone.0) != 100 || sum(|zone| zone.1) != 100 {
        let (calls, range) = (sum(|zone| zone.0), sum(|zone| zone.1));
        let message =
            format!("{} zones with {calls} % of the calls and {range} % of the range", zones.len());
        return Err(Bad::new(message).allowed(allowed));
    }
    Ok(Distribution::Zoned(zones))
}

/// What is left of 100 percent, in whole parts that are as equal as they can be.
struct Shares {
    each: u32,
    more: u32,
}

impl Shares {
    fn new(given: u32, parts: usize) -> Self {
        let (left, parts) = (100u32.saturating_sub(given), parts.max(1) as u32);
        Self { each: left / parts, more: left % parts }
    }
    fn next(&mut self) -> u32 {
        let one = u32::from(self.more > 0);
        self.more -= one;
        self.each + one
    }
}
