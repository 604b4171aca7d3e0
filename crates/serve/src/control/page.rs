//! Pagination of long lists.

use super::problem::Problem;

/// Things on a page unless the caller says how many, and the most.
const LIMIT: usize = 1000;
const LIMIT_MAX: usize = 10_000;

/// Which part of a list is wanted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Page {
    /// The last name of the page before.
    after: Option<String>,
    limit: usize,
}

impl Page {
    /// The first `limit` things.
    pub(super) fn first(limit: usize) -> Self {
        Self { after: None, limit }
    }
    /// `after=NAME&limit=N`, with percent signs.
    pub(super) fn parse(
        query: &str,
        unescape: impl Fn(&str) -> Result<String, Problem>,
    ) -> Result<Self, Problem> {
        let mut page = Self { after: None, limit: LIMIT };
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            match pair.split_once('=') {
                Some(("after", name)) => page.after = Some(unescape(name)?),
                Some(("limit", number)) => {
                    let number = number.parse().ok().filter(|n| (1..=LIMIT_MAX).contains(n));
                    page.limit = number.ok_or_else(|| bad(pair))?;
                }
                _ => return Err(bad(pair)),
            }
        }
        Ok(page)
    }
    /// Whether it is the first one.
    pub(super) fn is_first(&self) -> bool {
        self.after.is_none()
    }
    /// The things on it, and the name to go on after if there are more.
    pub(super) fn slice<T>(
        &self,
        mut all: Vec<T>,
        name: impl Fn(&T) -> &str,
    ) -> Result<(Vec<T>, Option<String>), Problem> {
        if let Some(after) = &self.after {
            let found = all.iter().position(|one| name(one) == after);
            let gone =
                || Problem::bad_request(format!("\"{after}\" is not in the list: begin again"));
            all.drain(..=found.ok_or_else(gone)?);
        }
        let more = all.len() > self.limit;
        all.truncate(self.limit);
        let next = all.last().filter(|_| more).map(|last| name(last).to_string());
        Ok((all, next))
    }
}

fn bad(pair: &str) -> Problem {
    let message = format!("\"{pair}\" after the question mark");
    Problem::bad_request(message).allowed(format!("after=NAME, limit=1 to {LIMIT_MAX}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: pages hold everything once, in order. Method: a list in pages of two.
    #[test]
    fn pages_hold_everything_once() {
        let list = vec!["a", "b/c", "d", "e"];
        let same = |text: &str| Ok(text.to_string());
        let mut query = "limit=2".to_string();
        let mut seen = Vec::new();
        loop {
            let page = Page::parse(&query, same).unwrap();
            let (part, next) = page.slice(list.clone(), |name| name).unwrap();
            seen.extend(part);
            let Some(next) = next else { break };
            query = format!("limit=2&after={next}");
        }
        assert_eq!(seen, list);
        for query in ["limit=0", "limit=10001", "limit", "from=a"] {
            assert!(Page::parse(query, same).is_err(), "{query}");
        }
        assert!(Page::parse("after=x", same).unwrap().slice(list, |name| name).is_err());
    }
}
