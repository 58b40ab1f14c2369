//! What a script reaches of the server: whoever runs one lends a host to the interpreter.

use resp::ArgsView;

/// What a script reaches of the server.
pub trait Host {
    /// Runs a command and appends its whole reply to `out`, in version 3 of the protocol if `resp3`; errors, too. A reply should have at
    /// most `room` bytes.
    ///
    /// # Errors
    /// [`Ended`] when the attempt is over; the host keeps why.
    fn call(
        &mut self,
        args: ArgsView<'_>,
        resp3: bool,
        room_bytes: usize,
        out: &mut Vec<u8>,
    ) -> Result<(), Ended>;

    /// Whether who runs the script may run this command; `None`: there is none of this name.
    fn may(&self, args: ArgsView<'_>) -> Option<bool>;
}

/// The attempt is over.
#[derive(Debug)]
pub struct Ended;
