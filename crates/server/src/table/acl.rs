//! Commands about users.
//!
//! One row a command, as `row` describes; names and texts are those that clients of Redis know.

use commands::rows;

use super::row::{Handler, Row};
use crate::handlers::acl;

/// The rows.
pub(crate) const ROWS: &[Row] = rows! {
    "acl", -2, [], [], Handler::Container(ACL),
        "slow", "", "server", "6.0.0", "Depends on subcommand.",
        "A container for Access List Control commands ";
};

/// Subcommands of ACL.
const ACL: &[Row] = rows! {
    "acl|cat", -2, [NOSCRIPT LOADING STALE], [], Handler::Control(acl::cat),
        "slow", "", "server", "6.0.0", "O(1) since the categories and commands are a fixed set.",
        "List the ACL categories or the commands inside a category",
        args "[categoryname:string]";
    "acl|deluser", -3, [ADMIN NOSCRIPT LOADING STALE], [], Handler::Control(acl::deluser),
        "admin slow dangerous", "", "server", "6.0.0", "O(1) amortized time considering the typical user.",
        "Remove the specified ACL users and the associated rules",
        args "username:string+";
    "acl|dryrun", -4, [ADMIN NOSCRIPT LOADING STALE], [], Handler::Control(acl::dryrun),
        "admin slow dangerous", "", "server", "7.0.0", "O(1).",
        "Returns whether the user can execute the given command without executing the command.",
        args "username:string command:string [arg:string+]";
    "acl|genpass", -2, [NOSCRIPT LOADING STALE], [], Handler::Control(acl::genpass),
        "slow", "", "server", "6.0.0", "O(1)",
        "Generate a pseudorandom secure password to use for ACL users",
        args "[bits:integer]";
    "acl|getuser", 3, [ADMIN NOSCRIPT LOADING STALE], [], Handler::Control(acl::getuser),
        "admin slow dangerous", "", "server", "6.0.0", "O(N). Where N is the number of password, command and pattern rules that the user has.",
        "Get the rules for a specific ACL user",
        args "username:string",
        history "6.2.0 Added Pub/Sub channel patterns.\n\
            7.0.0 Added selectors and changed the format of key and channel patterns from a list to their rule representation.";
    "acl|help", 2, [LOADING STALE], [], Handler::Control(acl::help),
        "slow", "", "server", "6.0.0", "O(1)",
        "Show helpful text about the different subcommands";
    "acl|list", 2, [ADMIN NOSCRIPT LOADING STALE], [], Handler::Control(acl::list),
        "admin slow dangerous", "", "server", "6.0.0", "O(N). Where N is the number of configured users.",
        "List the current ACL rules in ACL config file format";
    "acl|load", 2, [ADMIN NOSCRIPT LOADING STALE], [], Handler::Control(acl::load),
        "admin slow dangerous", "", "server", "6.0.0", "O(N). Where N is the number of configured users.",
        "Reload the ACLs from the configured ACL file";
    "acl|log", -2, [ADMIN NOSCRIPT LOADING STALE], [], Handler::Control(acl::log),
        "admin slow dangerous", "", "server", "6.0.0", "O(N) with N being the number of entries shown.",
        "List latest events denied because of ACLs in place",
        args "[operation(count:integer|reset=RESET)]";
    "acl|save", 2, [ADMIN NOSCRIPT LOADING STALE], [], Handler::Control(acl::save),
        "admin slow dangerous", "", "server", "6.0.0", "O(N). Where N is the number of configured users.",
        "Save the current ACL rules in the configured ACL file";
    "acl|setuser", -3, [ADMIN NOSCRIPT LOADING STALE], [], Handler::Control(acl::setuser),
        "admin slow dangerous", "", "server", "6.0.0", "O(N). Where N is the number of rules provided.",
        "Modify or create the rules for a specific ACL user",
        args "username:string [rule:string+]",
        history "6.2.0 Added Pub/Sub channel patterns.\n\
            7.0.0 Added selectors and key based permissions.";
    "acl|users", 2, [ADMIN NOSCRIPT LOADING STALE], [], Handler::Control(acl::users),
        "admin slow dangerous", "", "server", "6.0.0", "O(N). Where N is the number of configured users.",
        "List the username of all the configured ACL rules";
    "acl|whoami", 2, [NOSCRIPT LOADING STALE], [], Handler::Control(acl::whoami),
        "slow", "", "server", "6.0.0", "O(1)",
        "Return the name of the user associated to the current connection";
};
