//! Commands about positions, which are scores of sorted sets.
//!
//! One row a command, as `row` describes; names and texts are those that clients of Redis know.

use super::row::{Handler, Row};
use crate::command::keys;
use crate::handlers::{geo, geo_search};
use crate::rows;

/// The rows.
pub(crate) const ROWS: &[Row] = rows! {
    "geoadd", -5, [WRITE DENYOOM], [keys(1, 0, 1, "RW update")], Handler::Data(geo::geoadd),
        "write geo slow", "", "geo", "3.2.0", "O(log(N)) for each item added, where N is the number of elements in the sorted set.",
        "Add one or more geospatial items in the geospatial index represented using a sorted set",
        args "key:key0 [condition(nx=NX|xx=XX)@6.2.0] [change=CH@6.2.0] longitude_latitude_member{longitude:double latitude:double member:string}+",
        history "6.2.0 Added the `CH`, `NX` and `XX` options.";
    "geodist", -4, [READONLY], [keys(1, 0, 1, "RO access")], Handler::Data(geo::geodist),
        "read geo slow", "", "geo", "3.2.0", "O(log(N))",
        "Returns the distance between two members of a geospatial index",
        args "key:key0 member1:string member2:string [unit(m=M|km=KM|ft=FT|mi=MI)]";
    "geohash", -2, [READONLY], [keys(1, 0, 1, "RO access")], Handler::Data(geo::geohash),
        "read geo slow", "", "geo", "3.2.0", "O(log(N)) for each member requested, where N is the number of elements in the sorted set.",
        "Returns members of a geospatial index as standard geohash strings",
        args "key:key0 member:string+";
    "geopos", -2, [READONLY], [keys(1, 0, 1, "RO access")], Handler::Data(geo::geopos),
        "read geo slow", "", "geo", "3.2.0", "O(N) where N is the number of members requested.",
        "Returns longitude and latitude of members of a geospatial index",
        args "key:key0 member:string+";
    "georadius", -6, [WRITE DENYOOM], [keys(1, 0, 1, "RO access"), geo_search::RADIUS_TARGETS[0], geo_search::RADIUS_TARGETS[1]], Handler::Data(geo_search::georadius),
        "write geo slow", "", "geo", "3.2.0", "O(N+log(M)) where N is the number of elements inside the bounding box of the circular area delimited by center and radius and M is the number of items inside the index.",
        "Query a sorted set representing a geospatial index to fetch members matching a given maximum distance from a point",
        args "key:key0 longitude:double latitude:double radius:double unit(m=M|km=KM|ft=FT|mi=MI) [withcoord=WITHCOORD] [withdist=WITHDIST] [withhash=WITHHASH] [count{count:integer=COUNT [any=ANY@6.2.0]}] [order(asc=ASC|desc=DESC)] [key:key1=STORE] [key:key2=STOREDIST]",
        history "6.2.0 Added the `ANY` option for `COUNT`.\n\
            7.0.0 Added support for uppercase unit names.",
        deprecated "6.2.0 `GEOSEARCH` and `GEOSEARCHSTORE` with the `BYRADIUS` argument";
    "georadius_ro", -6, [READONLY], [keys(1, 0, 1, "RO access")], Handler::Data(geo_search::georadius_ro),
        "read geo slow", "", "geo", "3.2.10", "O(N+log(M)) where N is the number of elements inside the bounding box of the circular area delimited by center and radius and M is the number of items inside the index.",
        "A read-only variant for GEORADIUS",
        args "key:key0 longitude:double latitude:double radius:double unit(m=M|km=KM|ft=FT|mi=MI) [withcoord=WITHCOORD] [withdist=WITHDIST] [withhash=WITHHASH] [count{count:integer=COUNT [any=ANY@6.2.0]}] [order(asc=ASC|desc=DESC)]",
        history "6.2.0 Added the `ANY` option for `COUNT`.",
        deprecated "6.2.0 `GEOSEARCH` with the `BYRADIUS` argument";
    "georadiusbymember", -5, [WRITE DENYOOM], [keys(1, 0, 1, "RO access"), geo_search::MEMBER_TARGETS[0], geo_search::MEMBER_TARGETS[1]], Handler::Data(geo_search::georadiusbymember),
        "write geo slow", "", "geo", "3.2.0", "O(N+log(M)) where N is the number of elements inside the bounding box of the circular area delimited by center and radius and M is the number of items inside the index.",
        "Query a sorted set representing a geospatial index to fetch members matching a given maximum distance from a member",
        args "key:key0 member:string radius:double unit(m=M|km=KM|ft=FT|mi=MI) [withcoord=WITHCOORD] [withdist=WITHDIST] [withhash=WITHHASH] [count{count:integer=COUNT [any=ANY]}] [order(asc=ASC|desc=DESC)] [key:key1=STORE] [key:key2=STOREDIST]",
        history "7.0.0 Added support for uppercase unit names.",
        deprecated "6.2.0 `GEOSEARCH` and `GEOSEARCHSTORE` with the `BYRADIUS` and `FROMMEMBER` arguments";
    "georadiusbymember_ro", -5, [READONLY], [keys(1, 0, 1, "RO access")], Handler::Data(geo_search::georadiusbymember_ro),
        "read geo slow", "", "geo", "3.2.10", "O(N+log(M)) where N is the number of elements inside the bounding box of the circular area delimited by center and radius and M is the number of items inside the index.",
        "A read-only variant for GEORADIUSBYMEMBER",
        args "key:key0 member:string radius:double unit(m=M|km=KM|ft=FT|mi=MI) [withcoord=WITHCOORD] [withdist=WITHDIST] [withhash=WITHHASH] [count{count:integer=COUNT [any=ANY]}] [order(asc=ASC|desc=DESC)]",
        deprecated "6.2.0 `GEOSEARCH` with the `BYRADIUS` and `FROMMEMBER` arguments";
    "geosearch", -7, [READONLY], [keys(1, 0, 1, "RO access")], Handler::Data(geo_search::geosearch),
        "read geo slow", "", "geo", "6.2.0", "O(N+log(M)) where N is the number of elements in the grid-aligned bounding box area around the shape provided as the filter and M is the number of items inside the shape",
        "Query a sorted set representing a geospatial index to fetch members inside an area of a box or a circle.",
        args "key:key0 search-type(radius-or-box{from(member:string=FROMMEMBER|longitude_latitude{longitude:double latitude:double}=FROMLONLAT) by(circle{radius:double=BYRADIUS unit(m=M|km=KM|ft=FT|mi=MI)}|box{width:double=BYBOX height:double unit(m=M|km=KM|ft=FT|mi=MI)})}|polygon{num-vertices:integer=BYPOLYGON vertices{longitude:double latitude:double}+}@9.0.0) [order(asc=ASC|desc=DESC)] [count{count:integer=COUNT [any=ANY]}] [withcoord=WITHCOORD] [withdist=WITHDIST] [withhash=WITHHASH]",
        history "7.0.0 Added support for uppercase unit names.";
    "geosearchstore", -8, [WRITE DENYOOM], [keys(1, 0, 1, "OW update"), keys(2, 0, 1, "RO access")], Handler::Data(geo_search::geosearchstore),
        "write geo slow", "", "geo", "6.2.0", "O(N+log(M)) where N is the number of elements in the grid-aligned bounding box area around the shape provided as the filter and M is the number of items inside the shape",
        "Query a sorted set representing a geospatial index to fetch members inside an area of a box or a circle, and store the result in another key.",
        args "destination:key0 source:key1 search-type(radius-or-box{from(member:string=FROMMEMBER|longitude_latitude{longitude:double latitude:double}=FROMLONLAT) by(circle{radius:double=BYRADIUS unit(m=M|km=KM|ft=FT|mi=MI)}|box{width:double=BYBOX height:double unit(m=M|km=KM|ft=FT|mi=MI)})}|polygon{num-vertices:integer=BYPOLYGON vertices{longitude:double latitude:double}+}@9.0.0) [order(asc=ASC|desc=DESC)] [count{count:integer=COUNT [any=ANY]}] [storedist=STOREDIST]",
        history "7.0.0 Added support for uppercase unit names.";
};
