//! The call that Luau makes at its safepoints: loops, calls, returns, and each step of a pattern.
//!
//! `mlua` has one, which costs several times what the safepoint itself does: it prepares for errors of any kind. Ours counts, and does
//! nothing else until the run is over or garbage is to be collected (`meter`).
#![allow(
    unsafe_code,
    reason = "a function that C++ calls, with the interpreter that calls it; proofs beside each block"
)]

use mlua::{Lua, ffi};

use super::meter::{Safepoint, collected, safepoint};

/// Has all code of `lua` call ours.
///
/// # Errors
/// What Lua refuses: memory.
pub(super) fn install(lua: &Lua) -> mlua::Result<()> {
    // SAFETY: `state` is that of `lua`; its callbacks live as long, and only this field is changed. The stack is left as it was.
    unsafe { lua.exec_raw::<()>((), |state| (*ffi::lua_callbacks(state)).interrupt = Some(interrupt)) }
}

/// Called by Luau at a safepoint; `gc` says that it is one of the collector, which must not be left by an error.
unsafe extern "C-unwind" fn interrupt(state: *mut ffi::lua_State, gc: std::ffi::c_int) {
    if gc >= 0 {
        return;
    }
    // SAFETY: `state` runs, and all of these may be called at a safepoint: nothing that Luau holds moves, and it reads its stack anew
    // behind the call. An error unwinds through this frame, which has nothing to drop.
    unsafe {
        match safepoint(ffi::lua_totalbytes(state, ALL_CATEGORIES)) {
            Safepoint::GoOn => {}
            Safepoint::Collect => {
                ffi::lua_gc(state, ffi::LUA_GCCOLLECT, 0);
                collected(ffi::lua_totalbytes(state, ALL_CATEGORIES));
            }
            Safepoint::Stop => {
                ffi::lua_rawcheckstack(state, 1);
                ffi::lua_pushnil(state);
                ffi::lua_error(state);
            }
        }
    }
}

/// Bytes of all kinds.
const ALL_CATEGORIES: std::ffi::c_int = -1;
