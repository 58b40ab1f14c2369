-- Scripts that both servers are given: EVAL <line> 2 k1 k2 a1 a2. Their keys and what they leave is the same for both.
-- values to replies
return 1
return 1.99
return -1.99
return 'text'
return nil
return true
return false
return {}
return {1, 2, 3}
return {1, nil, 3}
return {1, 'a', {2, {3}}}
return {1, true, false, 'x'}
return {a = 1}
return {ok = 'fine'}
return {err = 'ERR wrong'}
return {err = 'no code'}
return {{err = 'ERR inner'}, 1}
return {1, {ok = 'status'}}
return {double = 3.5}
return {double = 1e300}
return {map = {a = 1, b = {2}}}
return {set = {a = true, b = true}}
return {big_number = '12345678901234567890'}
return {big_number = "1\r\n2"}
return {verbatim_string = {string = 'text', format = 'txt'}}
return 1e20
return 0/0
return KEYS
return ARGV
return {#KEYS, #ARGV}
return function() end
return redis.call
return cjson.null
return {KEYS[1], KEYS[3], ARGV[1]}
redis.setresp(3) return true
redis.setresp(3) return false
redis.setresp(3) return {true, false}
redis.setresp(3) return nil
-- replies to values
return redis.call('set', KEYS[1], 'v')
return redis.call('get', KEYS[1])
return redis.call('get', 'nothing')
return redis.call('get', 'nothing') == false
return type(redis.call('set', KEYS[1], 'v'))
return redis.call('set', KEYS[1], 'v').ok
return redis.call('incr', 'n')
return redis.call('incrbyfloat', 'n', 0.5)
return redis.call('hset', 'h', 'f', 'v', 'g', 'w')
return redis.call('hgetall', 'h')
redis.setresp(3) return redis.call('hgetall', 'h')
redis.setresp(3) return redis.call('hgetall', 'h').map.f
return redis.call('sadd', 's', 'a', 'b')
local t = redis.call('smembers', 's') table.sort(t) return t
redis.setresp(3) return redis.call('smembers', 's')
redis.setresp(3) return redis.call('smembers', 's').set.a
redis.setresp(3) return redis.call('get', 'nothing')
redis.setresp(3) return redis.call('get', 'nothing') == nil
redis.setresp(3) local r = redis.call('hgetall', 'h') redis.setresp(2) return r
return redis.call('mget', KEYS[1], 'nothing', 'n')
return redis.call('exists', KEYS[1])
return redis.call('del', KEYS[1])
return redis.call('ping')
return redis.call('ping', 'x')
return redis.call('echo', 'x')
return redis.call('echo', 1.5)
return redis.call('echo', 3)
return redis.call('echo', 0.1)
return redis.call('echo', -1e-7)
return redis.call('echo', 1e17)
return redis.call('publish', 'c', 'm')
return redis.call('object', 'encoding', 'n')
return redis.call('type', 'h')
return redis.call('hrandfield', 'nothing')
return redis.call('hmget', 'h', 'f', 'no')
return redis.call('ttl', 'h')
return redis.call('time')[1] == redis.call('time')[1]
return redis.call('strlen', 'n')
return redis.call('SELECT', 1)
return redis.call('select', 99)
return redis.call('select', 'x')
return redis.call('dbsize')
return #redis.call('keys', '*')
return redis.call('swapdb', 5, 6)
return redis.call('expire', 'h', 100)
return redis.call('flushdb')
-- errors
return redis.call('incr', KEYS[1], 'x')
redis.call('set', KEYS[1], 'x') return redis.call('incr', KEYS[1])
redis.call('set', KEYS[1], 'x') return redis.pcall('incr', KEYS[1])
redis.call('set', KEYS[1], 'x') return redis.call('hget', KEYS[1], 'f')
return redis.pcall('nosuch')
return redis.call('nosuch')
return redis.call()
return redis.pcall()
return redis.call({})
return redis.call(nil)
return redis.call('get')
return redis.call('get', 'a', 'b')
return redis.call('object', 'nosuch')
return redis.call('multi')
return redis.call('eval', 'return 1', 0)
return redis.call('subscribe', 'c')
return redis.call('config', 'get', 'x')
return redis.call('script', 'load', 'x')
return redis.call('wait', 0, 0)
error('boom')
error('boom', 0)
error({err = 'My Err'})
error({err = 'ERR mine'})
error('a\r\nb')
local function f() error('deep') end f()
local t = nil return t.x
local t = {} t.x.y = 1
return 1 + {}
return {} .. 'x'
return #nil
return ('x'):bad()
return redis.error_reply('My Err')
return redis.error_reply('NOSPACE')
return redis.error_reply('-CODE text')
return redis.error_reply('')
return redis.error_reply()
return redis.error_reply(1)
return redis.error_reply('x', 'y')
return redis.status_reply('fine')
return redis.status_reply()
return redis.status_reply(1)
return redis.error_reply('a\r\nb c')
return redis.status_reply('a\r\nb')
return {redis.pcall('nosuch').err, 1}
local a, b = pcall(redis.call, 'nosuch') return {tostring(a), type(b), b}
local a, b = pcall(error, 'x') return {tostring(a), b}
local a, b = pcall(error, {err = 'E y'}) return {tostring(a), b}
local a, b = pcall(error, {x = 1}) return {tostring(a), b.x}
local a, b = pcall(function() error('in') end) return {tostring(a), b}
local a, b = pcall(function() return 1, 2 end) return {tostring(a), b}
local a, b = xpcall(function() error('in') end, function(e) return 'got ' .. e end) return {tostring(a), b}
local a, b = xpcall(function() redis.call('nosuch') end, function(e) return type(e) .. e.err end) return {tostring(a), b}
local co = coroutine.create(function(x) local y = coroutine.yield(x + 1) return y * 2 end) local _, a = coroutine.resume(co, 1) local _, b = coroutine.resume(co, 5) return {a, b, coroutine.status(co)}
local co = coroutine.create(function() redis.call('nosuch') end) local a, b = coroutine.resume(co) return {tostring(a), type(b), b.err}
return coroutine.wrap(function() return redis.call('echo', 'in') end)()
return select('#', pcall(function() end))
assert(false, 'asserted')
assert(false)
return assert(7)
-- the sandbox
x = 1
return x
local y = 1 return y
_G.x = 1
redis.x = 1
redis = 1
string.x = 1
KEYS = {}
KEYS[1] = 'y' return KEYS
rawset(_G, 'x', 1)
rawset(redis, 'x', 1)
setmetatable(_G, {})
setmetatable(redis, {})
table.insert(redis, 1)
getmetatable(_G).__index = 1
return type(getmetatable('').__index)
return #getmetatable('').__index.format('%s', 'x')
return redis.nothing
return string.nothing
return print
return dofile
return loadfile
return require
return io
return debug
return package
return getfenv
return setfenv
return newproxy
return module
return type(os.clock())
return type(_G)
return _G._G == _G
return rawget(_G, 'nothing')
return type(rawget(_G, 'redis'))
return _VERSION
return loadstring('return 5')()
return loadstring('return')
return loadstring('not lua')
local f, e = loadstring('not lua') return e
local f = loadstring('x = 1') return f()
return load(function() return nil end)
local n = 0 return load(function() n = n + 1 return ({'return ', '8'})[n] end)()
return load('return 1')
return type(string.dump(function() end))
return collectgarbage('count') > 0
return type(gcinfo())
local t = setmetatable({}, {__index = function(t, k) return k .. '!' end}) return t.x
local t = setmetatable({}, {__call = function(t, a) return a end}) return t(3)
return getmetatable(setmetatable({}, {__metatable = 'mine'}))
local n = 0 for k in pairs(_G) do n = n + 1 end return n > 20
local t = {} for k, v in pairs({a = 1}) do t[#t + 1] = k .. v end return t
local t = {} for i, v in ipairs({5, 6, nil, 7}) do t[#t + 1] = v end return t
return next({})
return {unpack({1, 2, 3}, 2)}
return select(-1, 'a', 'b')
return tostring(nil) .. tostring(true) .. tostring(12) .. tostring(1.5)
return tonumber('0x10') + tonumber('10', 2)
return tonumber('x')
return rawequal(_G, _G)
return rawget({5}, 1)
return type(math.random())
math.randomseed(5) return math.random(100)
math.randomseed(5) return math.random(10, 20)
return math.random(0)
return math.floor(2.7) + math.max(1, 5) + math.fmod(7, 3)
return math.huge > 1e300
return string.format('%5.2f|%d|%s|%q|%x', 3.14159, 42, 'str', 'q"', 255)
return ('hello world'):gsub('o', '0')
return string.rep('ab', 3) .. ('abc'):upper() .. ('abc'):reverse()
return {string.find('hello', 'l+'), string.match('key=val', '(%w+)=(%w+)')}
return table.concat({1, 2, 3}, '-')
local t = {3, 1, 2} table.sort(t) return t
local t = {3, 1, 2} table.sort(t, function(a, b) return a > b end) return t
local t = {1, 2} table.insert(t, 3) table.insert(t, 1, 0) table.remove(t) return t
return table.getn({1, 2})
return string.rep('x', -1)
return string.char(72, 105)
return {string.byte('AB', 1, -1)}
return #string.format('%s', string.rep('x', 1000))
return bit.nothing
-- redis.*
return redis.sha1hex('')
return redis.sha1hex('abc')
return redis.sha1hex(12)
return redis.sha1hex()
return redis.sha1hex({})
return redis.log(redis.LOG_DEBUG, 'x')
return redis.log(1)
return redis.log('x', 'y')
return redis.log(9, 'y')
return redis.setresp(2)
return redis.setresp(4)
return redis.setresp('x')
return redis.setresp()
return redis.set_repl(redis.REPL_ALL)
return redis.set_repl(9)
return redis.set_repl()
return redis.replicate_commands()
return redis.breakpoint()
return redis.debug('x')
return redis.acl_check_cmd('get', 'x')
return redis.acl_check_cmd('nosuch')
return redis.acl_check_cmd()
return redis.REDIS_VERSION
return redis.REDIS_VERSION_NUM
return {redis.REPL_ALL, redis.REPL_AOF, redis.REPL_NONE, redis.REPL_REPLICA, redis.REPL_SLAVE}
return {redis.LOG_DEBUG, redis.LOG_VERBOSE, redis.LOG_NOTICE, redis.LOG_WARNING}
return redis.register_function
return redis.call('info', 'server'):sub(1, 8)
return redis.call('command', 'count') > 100
return redis.call('lastsave') > 0
-- cjson
return cjson.encode({1, 2, 3})
return cjson.encode({})
return cjson.encode({a = 1})
return cjson.encode({a = {b = {c = 'd'}}})
return cjson.encode('text "quoted" \\ / \b\f\n\r\t \1 \127 é')
return cjson.encode(nil)
return cjson.encode(true)
return cjson.encode(cjson.null)
return cjson.encode({cjson.null, 1})
return cjson.encode({1, nil, 3})
return cjson.encode({[1] = 1, [3] = 3})
return cjson.encode({[1] = 1, [100] = 3})
return cjson.encode({[0] = 1})
return cjson.encode({[1.5] = 1})
return cjson.encode({[true] = 1})
return cjson.encode(1e15)
return cjson.encode(123456789012)
return cjson.encode(12345678901234567890)
return cjson.encode(0.1)
return cjson.encode(1/3)
return cjson.encode(-1.5e-10)
return cjson.encode(1e300)
return cjson.encode(0/0)
return cjson.encode(1/0)
return cjson.encode(print)
return cjson.encode(redis.call)
return cjson.encode(function() end)
return cjson.encode()
return cjson.encode(1, 2)
local x = cjson.encode(function() end) return x
local a, b = pcall(cjson.encode, function() end) return b
local t = {} t.t = t return cjson.encode(t)
return cjson.decode('1')
return cjson.decode('"x"')
return cjson.decode('[1,2,3]')
return cjson.decode('[1,[2,[3]]]')[2][2][1]
return cjson.decode('{"a":{"b":[1,2]}}').a.b
return cjson.decode('{"a":null}').a == cjson.null
return tostring(cjson.decode('null'))
return cjson.decode('true')
return cjson.decode(' [ 1 , 2 ] ')
return cjson.decode('[]')
return cjson.decode('{}')
return cjson.decode('1.5e3')
return cjson.decode('-0.5') * 10
return cjson.decode('0x10')
return tostring(cjson.decode('nan'))
return tostring(cjson.decode('-inf'))
return tostring(cjson.decode('Infinity'))
return cjson.decode('01')
return cjson.decode('"\\u00e9\\ud83d\\ude00\\n\\/"')
return cjson.decode('"\\ud83d"')
return cjson.decode('"\\ude00"')
return cjson.decode('"\\x"')
return cjson.decode('"\\u12"')
return cjson.decode('"abc')
return cjson.decode('')
return cjson.decode('[')
return cjson.decode('[1')
return cjson.decode('[1,')
return cjson.decode('[1 2]')
return cjson.decode('{"a"}')
return cjson.decode('{"a":}')
return cjson.decode('{"a":1')
return cjson.decode('{a:1}')
return cjson.decode('{1:1}')
return cjson.decode('[1]]')
return cjson.decode('tru')
return cjson.decode('nul')
return cjson.decode('+1')
return cjson.decode('1.2.3')
return cjson.decode('*')
return cjson.decode('-')
return cjson.decode('.5')
return cjson.decode('1e')
return cjson.decode('"a\0b"')
return cjson.decode("\0")
return cjson.decode()
return cjson.decode({})
return cjson.decode(12)
return cjson.decode(string.rep('[', 2000))
return #cjson.decode(string.rep('[', 500) .. string.rep(']', 500))
cjson.encode_max_depth(2) return cjson.encode({{{1}}})
cjson.encode_max_depth(3) local x = cjson.encode({{{1}}}) cjson.encode_max_depth(1000) return x
cjson.decode_max_depth(2) local a, b = pcall(cjson.decode, '[[[1]]]') cjson.decode_max_depth(1000) return b
cjson.encode_number_precision(3) local x = cjson.encode(1/3) cjson.encode_number_precision(14) return x
cjson.encode_sparse_array(true) local x = cjson.encode({[1000] = 1}) cjson.encode_sparse_array(false, 2, 10) return x
return {cjson.encode_sparse_array()}
return cjson.encode_max_depth()
return cjson.encode_max_depth(0)
return cjson.encode_number_precision(99)
cjson.encode_invalid_numbers(true) local x = cjson.encode(1/0) cjson.encode_invalid_numbers(false) return x
cjson.encode_invalid_numbers('null') local x = cjson.encode({0/0}) cjson.encode_invalid_numbers(false) return x
cjson.decode_invalid_numbers(false) local a, b = pcall(cjson.decode, '0x1') cjson.decode_invalid_numbers(true) return b
return cjson.encode_keep_buffer()
return cjson._NAME
return cjson.new().encode({1})
return cjson.encode({['a b'] = 1})
return cjson.encode({'a', 'b', n = 1}):len()
-- cmsgpack
return cmsgpack.pack(1)
return cmsgpack.pack(-1, 127, 128, 255, 256, 65535, 65536, 4294967295, 4294967296)
return cmsgpack.pack(-32, -33, -128, -129, -32768, -32769, -2147483648, -2147483649)
return cmsgpack.pack(1.5, 0.1, 1e300)
return cmsgpack.pack('')
return cmsgpack.pack('text', string.rep('x', 40))
return #cmsgpack.pack(string.rep('x', 300))
return #cmsgpack.pack(string.rep('x', 70000))
return cmsgpack.pack(nil, true, false)
return cmsgpack.pack({})
return cmsgpack.pack({1, 2, 3})
return cmsgpack.pack({a = 1})
return cmsgpack.pack({1, nil, 3})
return cmsgpack.pack({[2] = 1})
return cmsgpack.pack({[1.5] = 1})
return cmsgpack.pack(function() end)
return cmsgpack.pack()
local t = {} for n = 1, 20 do t[n] = n end return cmsgpack.pack(t)
local t = 1 for n = 1, 20 do t = {t} end return cmsgpack.pack(t)
return cmsgpack.unpack(cmsgpack.pack({1, 'two', {3}}))
return {cmsgpack.unpack(cmsgpack.pack(1, 'two', 3))}
return {cmsgpack.unpack_one(cmsgpack.pack(1, 2, 3))}
return {cmsgpack.unpack_one(cmsgpack.pack(1, 2, 3), 1)}
return {cmsgpack.unpack_one(cmsgpack.pack(1, 2, 3), 2)}
return {cmsgpack.unpack_limit(cmsgpack.pack(1, 2, 3), 2)}
return {cmsgpack.unpack_limit(cmsgpack.pack(1, 2, 3), 2, 1)}
return {cmsgpack.unpack_limit(cmsgpack.pack(1, 2, 3), 0)}
return cmsgpack.unpack_one('x', -1)
return cmsgpack.unpack_one('x', 9)
return cmsgpack.unpack_limit('x')
return cmsgpack.unpack('')
return cmsgpack.unpack("\193")
return cmsgpack.unpack("\147\1")
return cmsgpack.unpack("\205\1")
return cmsgpack.unpack("\196\2ab")
return cmsgpack.unpack("\217\2ab")
return cmsgpack.unpack("\131\161a\1\161b\2\161c\3").b
return cmsgpack.unpack("\207\255\255\255\255\255\255\255\255") > 1e19
return cmsgpack.unpack("\211\255\255\255\255\255\255\255\254")
return cmsgpack.unpack()
return cmsgpack.unpack({})
return cmsgpack._NAME
-- struct
return struct.pack('b', 1)
return struct.pack('>I2', 513)
return struct.pack('<I2', 513)
return struct.pack('>i4', -2)
return struct.pack('>I3', 70000)
return struct.pack('>l', -1)
return struct.pack('>hHbB', -1, 65535, -1, 255)
return struct.pack('>f', 1.5)
return struct.pack('>d', 1.5)
return struct.pack('<d', -2.25)
return struct.pack('s', 'text')
return struct.pack('c3', 'text')
return struct.pack('c0', 'text')
return struct.pack('c9', 'text')
return struct.pack('>!4 b i4', 1, 2)
return struct.pack('x b x', 1)
return struct.pack('!3', 1)
return struct.pack('z', 1)
return struct.pack('i33', 1)
return struct.pack('i99999999999', 1)
return struct.pack('i')
return struct.pack('i', 'x')
return struct.pack('i', '12')
return struct.pack('')
return struct.pack()
return {struct.unpack('>I2', struct.pack('>I2', 513))}
return {struct.unpack('>i2', struct.pack('>i2', -3))}
return {struct.unpack('>bBhHiIlL', struct.pack('>bBhHiIlL', -1, 255, -2, 65535, -3, 4294967295, -4, 5))}
return {struct.unpack('>f', struct.pack('>f', 2.5))}
return {struct.unpack('>d', struct.pack('>d', 1000.25))}
return {struct.unpack('s', 'abc\0def')}
return {struct.unpack('s', 'abc')}
return {struct.unpack('c2', 'abc')}
return {struct.unpack('bc0', '\3abcdef')}
return {struct.unpack('c0', 'abc')}
return {struct.unpack('>I2', 'a')}
return {struct.unpack('>I2', 'abcd', 3)}
return {struct.unpack('>I2', 'abcd', 9)}
return {struct.unpack('>I2', 'abcd', -1)}
return {struct.unpack('!4bi4', struct.pack('!4bi4', 1, 2))}
return {struct.unpack('>I16', string.rep('\1', 16))}
return struct.unpack('b')
return struct.size('>I2i4d')
return struct.size('s')
return struct.size('c0')
return struct.size('!8 b d')
return struct.size('z')
-- bit
return bit.band(255, 15)
return bit.band(-1, 0xffffffff)
return bit.bor(1, 2, 4, 8)
return bit.bxor(0xff, 0x0f)
return bit.bnot(0)
return bit.lshift(1, 31)
return bit.lshift(1, 33)
return bit.rshift(-1, 28)
return bit.arshift(-256, 4)
return bit.rol(0x12345678, 8)
return bit.ror(0x12345678, 8)
return bit.bswap(0x12345678)
return bit.tobit(4294967297)
return bit.tobit(2.5)
return bit.tobit(3.5)
return bit.tobit('12')
return bit.tohex(255)
return bit.tohex(255, 4)
return bit.tohex(0xabcdef, -6)
return bit.tohex(-1, 99)
return bit.band()
return bit.band('x')
return bit.band({})
return bit.lshift(1)
