//! Scheduling classes and priorities.

use crate::bounds::LEVEL_MAX;
use crate::error::EngineError;

/// Scheduling class, most urgent first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub enum Class {
    /// Served before the other classes.
    RealTime,
    /// The default.
    #[default]
    BestEffort,
    /// Served only when no other client needs the drive.
    Idle,
}

impl Class {
    /// All classes, most urgent first; `class as usize` indexes an array of three.
    pub const ALL: [Self; 3] = [Self::RealTime, Self::BestEffort, Self::Idle];
}

/// A client's I/O priority: a class, and a level in it from 0 (highest) to [`LEVEL_MAX`] (lowest).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Priority {
    /// Scheduling class.
    pub class: Class,
    /// Level in the class, 0 to [`LEVEL_MAX`].
    pub level: u8,
}

impl Priority {
    /// Checks the level.
    ///
    /// # Errors
    ///
    /// [`EngineError::BadLevel`] if the level is above [`LEVEL_MAX`].
    pub const fn check(&self) -> Result<(), EngineError> {
        if self.level > LEVEL_MAX {
            return Err(EngineError::BadLevel(self.level));
        }
        Ok(())
    }
}

impl Default for Priority {
    fn default() -> Self {
        Self { class: Class::BestEffort, level: 4 }
    }
}
