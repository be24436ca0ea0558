//! Plans and roll-outs in other forms: what objects of other projects become, what a notification says, a page. Pure: no client, no
//! runtime.

#![forbid(unsafe_code)]

pub mod convert;
pub mod notify;
pub mod page;
