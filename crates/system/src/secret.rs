//! Secrets that are wiped where they lay, also those of types that do not do it themselves.

use std::fmt;
use std::mem::MaybeUninit;
use std::ops::Deref;
use std::sync::atomic::{Ordering, compiler_fence};

/// A value with a place of its own that is overwritten with zeros when it is dropped.
///
/// Only that place is: neither where the value was made before it was moved here, which the stack soon uses
/// again, nor what it points to.
pub struct Wiped<T>(Box<MaybeUninit<T>>);

impl<T> Wiped<T> {
    /// Moves a value to a place of its own.
    pub fn new(value: T) -> Self {
        Self(Box::new(MaybeUninit::new(value)))
    }
}

impl<T> Deref for Wiped<T> {
    type Target = T;

    fn deref(&self) -> &T {
        // It is there from `new` until it is dropped.
        #[allow(unsafe_code)]
        unsafe {
            self.0.assume_init_ref()
        }
    }
}

impl<T> Drop for Wiped<T> {
    fn drop(&mut self) {
        // It is there, and nobody sees it after this.
        #[allow(unsafe_code)]
        unsafe {
            self.0.assume_init_drop();
        }
        wipe(&mut self.0);
    }
}

impl<T> fmt::Debug for Wiped<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Wiped(..)")
    }
}

/// Overwrites a place in which there is no value any more. The compiler may not leave it out although nothing
/// reads it.
fn wipe<T>(place: &mut MaybeUninit<T>) {
    let first = place.as_mut_ptr().cast::<u8>();
    for at in 0..size_of::<T>() {
        // All of these bytes are of the place, which is borrowed for writing.
        #[allow(unsafe_code)]
        unsafe {
            first.add(at).write_volatile(0);
        }
    }
    // Nor may it give the place away before.
    compiler_fence(Ordering::SeqCst);
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;

    use super::*;

    #[test]
    fn a_place_is_zero_after_it_was_wiped() {
        let mut place = MaybeUninit::new([0xa5_u8; 67]);
        wipe(&mut place);
        // Every byte was written, and any byte is a number.
        #[allow(unsafe_code)]
        let bytes = unsafe { place.assume_init() };
        assert_eq!(bytes, [0; 67]);
    }

    #[test]
    fn a_value_can_be_used_and_is_dropped_once() {
        let shared = Rc::new(7);
        let wiped = Wiped::new(shared.clone());
        assert_eq!((**wiped, Rc::strong_count(&shared)), (7, 2));
        assert_eq!(format!("{wiped:?}"), "Wiped(..)");
        drop(wiped);
        assert_eq!(Rc::strong_count(&shared), 1);
        assert_eq!(*Wiped::new(()), ());
    }
}
