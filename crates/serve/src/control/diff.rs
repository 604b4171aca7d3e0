//! The lines that a change of the contract file removes and adds.

/// Above this, lines are not compared with each other: all that lie between the first and the last difference count.
const PAIRS_MAX: usize = 1 << 22;

/// The lines that go (`-`) and those that come (`+`), in the order of the text.
pub(super) fn lines(before: &str, after: &str) -> Vec<String> {
    let (old, new): (Vec<&str>, Vec<&str>) = (before.lines().collect(), after.lines().collect());
    let same = |(a, b): &(&&str, &&str)| a == b;
    let head = old.iter().zip(&new).take_while(same).count();
    let (old, new) = (&old[head..], &new[head..]);
    let tail = old.iter().rev().zip(new.iter().rev()).take_while(same).count();
    let (old, new) = (&old[..old.len() - tail], &new[..new.len() - tail]);
    let (gone, come) = (|line: &&str| format!("-{line}"), |line: &&str| format!("+{line}"));
    if old.len().saturating_mul(new.len()) > PAIRS_MAX {
        return old.iter().map(gone).chain(new.iter().map(come)).collect();
    }
    let (longest, width) = (longest(old, new), new.len() + 1);
    let (mut i, mut j, mut found) = (0, 0, Vec::new());
    while i < old.len() || j < new.len() {
        if i < old.len() && j < new.len() && old[i] == new[j] {
            (i, j) = (i + 1, j + 1);
        } else if j == new.len()
            || i < old.len() && longest[(i + 1) * width + j] >= longest[i * width + j + 1]
        {
            found.push(gone(&old[i]));
            i += 1;
        } else {
            found.push(come(&new[j]));
            j += 1;
        }
    }
    found
}

/// For each pair of places, how many lines what follows has in common at most.
fn longest(old: &[&str], new: &[&str]) -> Vec<u32> {
    let width = new.len() + 1;
    let mut table = vec![0; (old.len() + 1) * width];
    for i in (0..old.len()).rev() {
        for j in (0..new.len()).rev() {
            let skips = table[(i + 1) * width + j].max(table[i * width + j + 1]);
            let both = table[(i + 1) * width + j + 1] + 1;
            table[i * width + j] = if old[i] == new[j] { both } else { skips };
        }
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: only what differs is shown, in order, however large the text. Method: lines that change, come and go; two texts that
    /// are too large to compare.
    #[test]
    fn only_differences_are_shown() {
        assert!(lines("a\nb\n", "a\nb\n").is_empty());
        assert_eq!(lines("a\nb\nc\n", "a\nx\nc\n"), ["-b", "+x"]);
        assert_eq!(lines("a\nb\nc\nd\n", "a\nc\nd\ne\n"), ["-b", "+e"]);
        assert_eq!(lines("s\na\nb\n", "t\na\n"), ["-s", "+t", "-b"]);
        assert_eq!(lines("", "a\n"), ["+a"]);
        let many = |word: &str| (0..3000).map(|n| format!("{word}{n}\n")).collect::<String>();
        assert_eq!(lines(&many("a"), &many("b")).len(), 6000);
    }
}
