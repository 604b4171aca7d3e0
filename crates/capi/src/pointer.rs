//! Pointers of the caller: checked as far as a pointer can be, then followed.

use std::ffi::{CStr, c_char};

use crate::error::{Failure, IOFAIR_ERROR_POINTER};

fn check<T>(pointer: *const T, name: &str) -> Result<(), Failure> {
    match pointer {
        _ if pointer.is_null() => {
            Err(Failure::new(IOFAIR_ERROR_POINTER, format_args!("{name} is NULL")))
        }
        _ if !pointer.is_aligned() => {
            Err(Failure::new(IOFAIR_ERROR_POINTER, format_args!("{name} is not aligned")))
        }
        _ => Ok(()),
    }
}

/// What the caller lets us read during this call.
///
/// # Safety
/// `pointer` is null, misaligned, or points to a `T` that does not change during `'a`.
pub(crate) unsafe fn read<'a, T>(pointer: *const T, name: &str) -> Result<&'a T, Failure> {
    check(pointer, name)?;
    // SAFETY: not null and aligned; the rest as the caller of this function vouches.
    Ok(unsafe { &*pointer })
}

/// Text of the caller.
///
/// # Safety
/// `pointer` is null or points to bytes up to a zero, which do not change during `'a`.
pub(crate) unsafe fn text<'a>(pointer: *const c_char, name: &str) -> Result<&'a str, Failure> {
    check(pointer, name)?;
    // SAFETY: not null; the rest as the caller of this function vouches.
    let text = unsafe { CStr::from_ptr(pointer) };
    text.to_str().map_err(|_| Failure::argument(format_args!("{name} is not UTF-8")))
}

/// Where one result goes. Checked when it is made, so that a bad pointer is refused before anything changes.
pub(crate) struct Out<T>(*mut T);

impl<T> Out<T> {
    /// # Safety
    /// `pointer` is null, misaligned, or may be written as a `T` as long as this lives.
    pub(crate) unsafe fn new(pointer: *mut T, name: &str) -> Result<Self, Failure> {
        check(pointer.cast_const(), name)?;
        Ok(Self(pointer))
    }
    pub(crate) fn set(self, value: T) {
        // SAFETY: not null and aligned; the maker vouched for the rest. What was there is plain data or not initialised.
        unsafe { self.0.write(value) }
    }
}

/// Where several results go.
pub(crate) struct OutArray<T> {
    first: *mut T,
    capacity: usize,
}

impl<T> OutArray<T> {
    /// Null is allowed for an array of no elements.
    ///
    /// # Safety
    /// `first` is null, misaligned, or `capacity` elements from there may be written as long as this lives.
    pub(crate) unsafe fn new(first: *mut T, capacity: usize, name: &str) -> Result<Self, Failure> {
        if capacity > 0 {
            check(first.cast_const(), name)?;
        }
        Ok(Self { first, capacity })
    }
    /// What is beyond the capacity is dropped.
    pub(crate) fn set(&mut self, index: usize, value: T) {
        if index < self.capacity {
            // SAFETY: within the capacity, which is then not zero, so `first` was checked; the maker vouched for the rest.
            unsafe { self.first.add(index).write(value) }
        }
    }
}
