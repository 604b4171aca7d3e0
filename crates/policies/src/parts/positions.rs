//! Queues by the sector of their next request, to find queues that work near each other. CFQ and BFQ detect
//! cooperating processes this way.

use super::tree::{Arena, Tree};
use iofair_core::unit::Sectors;

/// The nodes that several trees (one per group or level) share.
pub type Positions = Arena<Sectors, u32>;

/// The nearer of the two neighbours of a position, with its distance, unless it is `except`; if both are equally
/// near, the one at or after the position.
pub fn nearest(
    positions: &Positions,
    tree: &Tree,
    position: Sectors,
    except: u32,
) -> Option<(Sectors, u32)> {
    let neighbours = [positions.at_or_after(tree, position), positions.before(tree, position)];
    let neighbours = neighbours.into_iter().flatten().filter_map(|node| {
        let queue = positions.value(node);
        (queue != except).then(|| (positions.key(node).distance(position), queue))
    });
    neighbours.min_by_key(|(distance, _)| *distance)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: the nearest on either side, a tie goes forwards, oneself does not count. Method: three
    /// queues.
    #[test]
    fn nearest_of_two_sides() {
        let (mut positions, mut tree) = (Positions::new(), Tree::new());
        assert_eq!(nearest(&positions, &tree, Sectors(5), 9), None);
        for (queue, at) in [100, 200, 400].into_iter().enumerate() {
            positions.insert(&mut tree, Sectors(at), queue as u32);
        }
        let near = |at, except| nearest(&positions, &tree, Sectors(at), except);
        assert_eq!(near(149, 9), Some((Sectors(49), 0)));
        assert_eq!(near(150, 9), Some((Sectors(50), 1)));
        assert_eq!(near(200, 9), Some((Sectors(0), 1)));
        assert_eq!(near(200, 1), Some((Sectors(100), 0)));
        assert_eq!(near(500, 2), None);
    }
}
