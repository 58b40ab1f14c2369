-- What scripts see of Luau: the functions of Lua 5.1 with what Redis adds. Run once for each interpreter, with functions of ours as
-- arguments; returns tables and functions for the host.
--
-- All tables that scripts share are read-only. Scripts get a table of their own as `_G`, a copy of the one that is returned.
-- This chunk is compiled without line numbers: errors that Luau raises within it name no place, and the host adds that of the script.

local ours = ...
local error, type, select, setmetatable, tonumber, unpack = error, type, select, setmetatable, tonumber, unpack
local raw_pcall, raw_xpcall, raw_resume, raw_tostring, raw_collect = pcall, xpcall, coroutine.resume, tostring, collectgarbage
local raw_find, raw_gmatch, raw_gsub, raw_match = string.find, string.gmatch, string.gsub, string.match
local raw_byte, raw_format, raw_sort, raw_concat = string.byte, string.format, table.sort, table.concat
local freeze, clone, floor, abs = table.freeze, table.clone, math.floor, math.abs
local caught, on_error, load_text, find_plain = ours.caught, ours.on_error, ours.load_text, ours.find_plain

-- Values that a function returns or takes, as many as Redis allows.
local VALUES_MAX = 8000
-- Bytes of a pattern.
local PATTERN_MAX = 1024
-- A plain search, or a set in a pattern, is looked at for so many bytes of the text times bytes of the pattern in one step.
local STEP_MAX = 2 ^ 24

-- Errors of ours are shown as Redis shows them.

local function after(ok, ...)
    if ok then
        return true, ...
    end
    return false, caught(true, ...)
end

local function after_other(ok, ...)
    if ok then
        return true, ...
    end
    return false, caught(false, ...)
end

local function my_pcall(...)
    return after(raw_pcall(...))
end

local function my_xpcall(f, handler)
    return raw_xpcall(f, function(e)
        return handler(caught(false, e))
    end)
end

local function my_resume(...)
    return after_other(raw_resume(...))
end

-- Numbers are shown with 14 digits, as Lua 5.1 does.

local function my_tostring(...)
    local value = ...
    if type(value) == "number" then
        return raw_format("%.14g", value)
    end
    if type(value) == "userdata" then
        -- there is only one, cjson.null
        return "userdata: (nil)"
    end
    return raw_tostring(...)
end

local function is_shown_longer(value)
    return type(value) == "number" and (value ~= floor(value) or abs(value) >= 1e14)
end

-- The arguments of `format` with the numbers for %s as text.
local function as_text(form, list)
    local at = 0
    for _, what in raw_gmatch(form, "%%([^%a%%]*)(.)") do
        if what ~= "%" then
            at = at + 1
            if what == "s" and type(list[at]) == "number" then
                list[at] = my_tostring(list[at])
            end
        end
    end
    return list
end

local function my_format(form, ...)
    local count = select("#", ...)
    if count > VALUES_MAX then
        error("too many arguments for 'format'", 2)
    end
    for at = 1, count do
        if is_shown_longer((select(at, ...))) and type(form) == "string" and #form < STEP_MAX then
            return raw_format(form, unpack(as_text(form, { ... }), 1, count))
        end
    end
    return raw_format(form, ...)
end

-- What Luau does in one step without a safepoint has a bound.

local function my_unpack(t, first, last)
    if type(t) ~= "table" then
        return unpack(t, first, last)
    end
    local from, to = tonumber(first or 1), tonumber(last or #t)
    -- also what is no number, and what Luau would cut to an integer
    if from and to and not (to - from < VALUES_MAX and abs(from) < 2 ^ 31 and abs(to) < 2 ^ 31) then
        if from <= to or from ~= from or to ~= to then
            error("too many results to unpack", 2)
        end
        return
    end
    return unpack(t, first, last)
end

local function my_byte(text, first, last)
    if last ~= nil and type(text) == "string" and #text > VALUES_MAX and ours.count_bytes(text, first or 1, last) > VALUES_MAX then
        error("string slice too long", 2)
    end
    return raw_byte(text, first, last)
end

local function less(a, b)
    return a < b
end

local function my_sort(t, before)
    return raw_sort(t, before or less)
end

local function is_large(text, pattern)
    return type(text) == "string" and type(pattern) == "string" and #text * #pattern > STEP_MAX
end

local function check_pattern(text, pattern)
    if type(pattern) == "string" and #pattern > PATTERN_MAX or is_large(text, pattern) and find_plain(pattern, "[", 1) then
        error("pattern too complex", 3)
    end
end

local function my_find(text, pattern, from, plain)
    if is_large(text, pattern) or (type(pattern) == "string" and #pattern > PATTERN_MAX) then
        if plain or not raw_find(pattern, "[%^%$%*%+%?%.%(%[%%%-]") then
            return find_plain(text, pattern, from)
        end
        check_pattern(text, pattern)
    end
    return raw_find(text, pattern, from, plain)
end

local function my_match(text, pattern, from)
    check_pattern(text, pattern)
    return raw_match(text, pattern, from)
end

local function my_gmatch(text, pattern)
    check_pattern(text, pattern)
    return raw_gmatch(text, pattern)
end

local function my_gsub(text, pattern, by, most)
    check_pattern(text, pattern)
    return raw_gsub(text, pattern, by, most)
end

local function my_dump()
    error("unable to dump given function", 2)
end

local function my_setn()
    error("'setn' is obsolete", 2)
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
    return load_text(raw_concat(pieces), name or "=(load)")
end

local function my_loadstring(text, name)
    return load_text(text, name or text)
end

local function my_collect(what)
    if what == "count" then
        return raw_collect("count")
    end
    if what == nil or what == "collect" or what == "step" then
        raw_collect("collect")
    end
    return 0
end

local string = freeze({
    byte = my_byte, char = string.char, dump = my_dump, find = my_find, format = my_format, gfind = my_gmatch, gmatch = my_gmatch,
    gsub = my_gsub, len = string.len, lower = string.lower, match = my_match, rep = string.rep, reverse = string.reverse,
    sub = string.sub, upper = string.upper,
})
local table = freeze({
    concat = raw_concat, foreach = table.foreach, foreachi = table.foreachi, getn = table.getn, insert = table.insert,
    maxn = table.maxn, remove = table.remove, setn = my_setn, sort = my_sort,
})
local math = freeze({
    abs = math.abs, acos = math.acos, asin = math.asin, atan = math.atan, atan2 = math.atan2, ceil = math.ceil, cos = math.cos,
    cosh = math.cosh, deg = math.deg, exp = math.exp, floor = math.floor, fmod = math.fmod, frexp = math.frexp, huge = math.huge,
    ldexp = math.ldexp, log = math.log, log10 = math.log10, max = math.max, min = math.min, mod = math.fmod, modf = math.modf,
    pi = math.pi, pow = math.pow, rad = math.rad, random = ours.random, randomseed = ours.randomseed, sin = math.sin,
    sinh = math.sinh, sqrt = math.sqrt, tan = math.tan, tanh = math.tanh,
})
local coroutine = freeze({
    create = coroutine.create, resume = my_resume, running = coroutine.running, status = coroutine.status, wrap = coroutine.wrap,
    yield = coroutine.yield,
})

local globals = {
    assert = assert, collectgarbage = my_collect, error = error, gcinfo = gcinfo, getmetatable = getmetatable, ipairs = ipairs,
    load = my_load, loadstring = my_loadstring, next = next, pairs = pairs, pcall = my_pcall, rawequal = rawequal, rawget = rawget,
    rawset = rawset, select = select, setmetatable = setmetatable, tonumber = tonumber, tostring = my_tostring, type = type,
    unpack = my_unpack, xpcall = my_xpcall, _VERSION = "Lua 5.1",
    bit = freeze(ours.bit), cjson = freeze(ours.cjson), cmsgpack = freeze(ours.cmsgpack), coroutine = coroutine, math = math,
    os = freeze({ clock = ours.clock }), redis = freeze(ours.redis), server = ours.redis, string = string, struct = freeze(ours.struct), table = table,
    -- filled for each script
    KEYS = {}, ARGV = {}, _G = {},
}
local of_library = clone(globals)
of_library.redis, of_library.KEYS, of_library.ARGV = freeze(ours.redis_of_library), nil, nil
of_library.server = of_library.redis
-- what code may be bound to when it is loaded: the same for all
local base = clone(of_library)
base.redis, base.server, base._G = nil, nil, nil

local strings = getmetatable("")
strings.__index = string
freeze(strings)

local guard = freeze({
    __index = function(_, name)
        error("Script attempted to access nonexistent global variable '" .. my_tostring(name) .. "'", 2)
    end,
})

-- A global table for a script, to be filled and frozen.
local function environment(is_library)
    return setmetatable(clone(is_library and of_library or globals), guard)
end

-- Calls a function of a script or a library; an error comes back as what `on_error` makes of it.

local function call(f)
    return raw_xpcall(f, on_error)
end

local function call_with(f, keys, args)
    return raw_xpcall(f, on_error, keys, args)
end

return freeze(base), environment, call, call_with
