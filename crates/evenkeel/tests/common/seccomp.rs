//! A kernel that answers some system calls of a process by itself.
#![allow(unsafe_code, reason = "a filter of system calls is installed between fork and exec")]

/// Has the kernel answer `calls` of this process, at most four, with `errno` (0: success) without doing them. To be called between fork
/// and exec: allocates nothing, takes no lock.
pub(crate) fn answer(calls: &[libc::c_long], errno: u32) -> std::io::Result<()> {
    const fn statement(code: u32, jt: u8, jf: u8, k: u32) -> libc::sock_filter {
        libc::sock_filter { code: code as u16, jt, jf, k }
    }
    let (load, equal) = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, libc::BPF_JMP | libc::BPF_JEQ);
    let allow = statement(libc::BPF_RET, 0, 0, libc::SECCOMP_RET_ALLOW);
    let mut filter = [allow; 2 + 2 * CALLS_MAX];
    filter[0] = statement(load, 0, 0, 0); // the number of the call
    for (pair, call) in filter[1..].chunks_mut(2).zip(calls) {
        pair[0] = statement(equal, 0, 1, *call as u32);
        pair[1] = statement(libc::BPF_RET, 0, 0, libc::SECCOMP_RET_ERRNO | errno);
    }
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
    // SAFETY: both calls take integers and a pointer to a program that outlives them.
    let results = unsafe {
        [
            libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0),
            libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program),
        ]
    };
    if results == [0, 0] { Ok(()) } else { Err(std::io::Error::last_os_error()) }
}

const CALLS_MAX: usize = 4;
