-- What scripts see of Lua. Run once for each interpreter, with our own functions as arguments; returns tables for the host.
--
-- A table that scripts share is shown through an empty one, whose metatable reads from the table behind it and refuses to
-- write. The functions that would get around a metatable refuse such a table.

local ours = ...
local assert, error, type, tostring, tonumber = assert, error, type, tostring, tonumber
local next, raw_pairs = next, pairs
local raw_pcall, raw_xpcall, raw_setmetatable, raw_getmetatable = pcall, xpcall, setmetatable, getmetatable
local raw_rawset, raw_rawget, raw_loadstring, raw_collect = rawset, rawget, loadstring, collectgarbage
local raw_resume, byte, concat = coroutine.resume, string.byte, table.concat
local caught, raised, halts, is_over, on_error = ours.caught, ours.raised, ours.halts, ours.is_over, ours.on_error

local READONLY = "Attempt to modify a readonly table"
local behind = {}

local function refuse()
    error(READONLY, 2)
end

local function show(hidden)
    local shown = {}
    raw_setmetatable(shown, { __index = hidden, __newindex = refuse, __metatable = shown })
    behind[shown] = hidden
    return shown
end

local function check(t)
    if behind[t] then
        error(READONLY, 0)
    end
end

-- Errors: an attempt that is over cannot be caught, and what we raise is shown as Redis shows it.

local function after_pcall(ok, ...)
    if ok then
        return true, ...
    end
    return false, caught(...)
end

local function after_other(ok, ...)
    if ok then
        return true, ...
    end
    is_over()
    return false, raised(...)
end

local function my_pcall(...)
    return after_pcall(raw_pcall(...))
end

local function my_xpcall(f, handler)
    return after_other(raw_xpcall(f, function(e)
        if halts(e) then
            return e
        end
        return handler(raised(e))
    end))
end

local function my_resume(...)
    return after_other(raw_resume(...))
end

-- Bytecode is not checked by Lua: it is never loaded.

local function my_loadstring(text, name)
    if type(text) == "string" and byte(text, 1) == 27 then
        return nil, "bytecode is not allowed"
    end
    return raw_loadstring(text, name)
end

local function my_load(f, name)
    if type(f) ~= "function" then
        error("bad argument #1 to 'load' (function expected, got " .. type(f) .. ")", 2)
    end
    local pieces = {}
    while true do
        local piece = f()
        if piece == nil or piece == "" then
            break
        end
        if type(piece) ~= "string" then
            return nil, "reader function must return a string"
        end
        pieces[#pieces + 1] = piece
    end
    return my_loadstring(concat(pieces), name or "=(load)")
end

local function my_collect(what, ...)
    if what == nil or what == "collect" or what == "count" or what == "step" then
        return raw_collect(what, ...)
    end
    return 0
end

-- Lua computes how many results there are in 32 bits, which may overflow: it ended the server.

local unpack = unpack
local RESULTS_MAX = 1e6

local function my_unpack(t, first, last)
    local from, to = tonumber(first or 1), tonumber(last or 0)
    if from and to and to - from >= RESULTS_MAX then
        error("too many results to unpack", 2)
    end
    return unpack(t, first, last)
end

-- Lua's own functions try for as long as it takes, and nothing ends them.

for name, ours_of_name in next, ours.string do
    string[name] = ours_of_name
end
string.gfind = string.gmatch

local globals = {
    assert = assert,
    collectgarbage = my_collect,
    error = error,
    gcinfo = gcinfo,
    getmetatable = raw_getmetatable,
    ipairs = ipairs,
    load = my_load,
    loadstring = my_loadstring,
    next = next,
    pairs = function(t)
        local hidden = behind[t]
        if hidden then
            return next, hidden, nil
        end
        return raw_pairs(t)
    end,
    pcall = my_pcall,
    rawequal = rawequal,
    rawget = function(t, k)
        return raw_rawget(behind[t] or t, k)
    end,
    rawset = function(t, k, v)
        check(t)
        return raw_rawset(t, k, v)
    end,
    select = select,
    setmetatable = function(t, meta)
        check(t)
        return raw_setmetatable(t, meta)
    end,
    tonumber = tonumber,
    tostring = tostring,
    type = type,
    unpack = my_unpack,
    xpcall = my_xpcall,
    _VERSION = _VERSION,
}

coroutine.resume = my_resume
local insert = table.insert
table.insert = function(t, ...)
    check(t)
    return insert(t, ...)
end
math.random, math.randomseed = ours.random, ours.randomseed

globals.string = show(string)
globals.table = show(table)
globals.math = show(math)
globals.coroutine = show(coroutine)
globals.os = show({ clock = ours.clock })
globals.bit = show(ours.bit)
globals.struct = show(ours.struct)
globals.cjson = show(ours.cjson)
globals.cmsgpack = show(ours.cmsgpack)
globals.redis = show(ours.redis)

local meta = raw_getmetatable("")
meta.__metatable = show({ __index = globals.string })

local shown = show(globals)
globals._G = shown
raw_setmetatable(globals, {
    __index = function(_, name)
        error("Script attempted to access nonexistent global variable '" .. tostring(name) .. "'", 2)
    end,
})

-- Calls a function of a script or a library; an error comes back as what `on_error` makes of it.

local function call(f)
    return raw_xpcall(f, on_error)
end

local function call_with(f, keys, args)
    return raw_xpcall(function()
        return f(keys, args)
    end, on_error)
end

return shown, globals, call, call_with
