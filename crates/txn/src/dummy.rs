//! A resource that does nothing, at once: what a coordinator costs without its resources.
