//! The files of a directory of experiments.

use std::io;
use std::path::{Path, PathBuf};

/// Most entries in and below a directory: a larger one, such as `/`, is a mistake that would take minutes to walk.
const ENTRIES_MAX: usize = 10_000;
/// Deepest directory below the first; links may make a circle.
const DEPTH_MAX: usize = 16;

/// Every `.toml` file under a directory, in the order of their paths.
pub(crate) fn collect_toml(directory: &Path, paths: &mut Vec<PathBuf>) -> io::Result<()> {
    walk(directory, 0, &mut 0, paths)
}

fn walk(
    directory: &Path,
    depth: usize,
    entries: &mut usize,
    paths: &mut Vec<PathBuf>,
) -> io::Result<()> {
    if depth > DEPTH_MAX {
        let place = directory.display();
        return Err(io::Error::other(format!(
            "{place} is too deep: allowed are {DEPTH_MAX} levels"
        )));
    }
    let left = ENTRIES_MAX - *entries;
    let found = std::fs::read_dir(directory)?.take(left + 1).map(|entry| entry.map(|e| e.path()));
    let mut found: Vec<PathBuf> = found.collect::<Result<_, _>>()?;
    if found.len() > left {
        return Err(io::Error::other(format!("more than {ENTRIES_MAX} entries in and below it")));
    }
    *entries += found.len();
    found.sort();
    for path in found {
        if path.is_dir() {
            walk(&path, depth + 1, entries, paths)?;
        } else if path.extension().is_some_and(|extension| extension == "toml") {
            paths.push(path);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a directory that is too large or a circle of links is refused. Method: one entry more than is allowed, a link to its
    /// own directory, and the same without them.
    #[test]
    fn directories_are_bounded() {
        let place = std::env::temp_dir().join(format!("iofair-entries-{}", std::process::id()));
        let inside = place.join("inside");
        std::fs::create_dir_all(&inside).unwrap();
        (1..ENTRIES_MAX)
            .for_each(|number| std::fs::write(inside.join(format!("{number}.toml")), "").unwrap());
        let listed = || {
            let mut paths = Vec::new();
            collect_toml(&place, &mut paths)
                .map(|()| paths.len())
                .map_err(|error| error.to_string())
        };
        assert_eq!(listed(), Ok(ENTRIES_MAX - 1));
        std::fs::write(inside.join("more.toml"), "").unwrap();
        assert_eq!(listed(), Err("more than 10000 entries in and below it".into()));
        std::fs::remove_dir_all(&inside).unwrap();
        std::os::unix::fs::symlink(&place, &inside).unwrap();
        assert!(listed().unwrap_err().ends_with("is too deep: allowed are 16 levels"));
        std::fs::remove_dir_all(&place).unwrap();
    }
}
