//! Positions: examples of the manuals, and what the differential test with Redis 7.0 does not see.

use super::{Harness, Wire};

const SICILY: &str = "GEOADD Sicily 13.361389 38.115556 Palermo 15.087269 37.502669 Catania 12.758489 38.788135 edge1 \
                      17.241510 38.788135 edge2";

fn sicily() -> (Harness, Wire) {
    let mut harness = Harness::new();
    let mut wire = harness.connect();
    harness.expect(&mut wire, &[(SICILY, ":4\r\n")]);
    (harness, wire)
}

#[test]
fn coordinates_are_doubles_in_resp3_and_distances_are_text() {
    let (harness, mut wire) = sicily();
    harness.expect(
        &mut wire,
        &[
            ("GEODIST Sicily Palermo Catania km", "$8\r\n166.2742\r\n"),
            (
                "GEOPOS Sicily Palermo nobody",
                "*2\r\n*2\r\n$20\r\n13.36138933897018433\r\n$20\r\n38.11555639549629859\r\n*-1\r\n",
            ),
        ],
    );
    harness.line(&mut wire, "HELLO 3");
    harness.expect(
        &mut wire,
        &[
            ("GEODIST Sicily Palermo Catania km", "$8\r\n166.2742\r\n"),
            ("GEODIST Sicily Palermo nobody", "_\r\n"),
            ("GEOPOS Sicily Palermo nobody", "*2\r\n*2\r\n,13.36138933897018433\r\n,38.11555639549629859\r\n_\r\n"),
            (
                "GEOSEARCH Sicily FROMLONLAT 15 37 BYBOX 400 400 km ASC COUNT 1 WITHDIST WITHHASH WITHCOORD",
                "*1\r\n*4\r\n$7\r\nCatania\r\n$7\r\n56.4413\r\n:3479447370796909\r\n*2\r\n,15.08726745843887329\r\n,37.50266842333162032\r\n",
            ),
        ],
    );
}

/// Only the key behind the first STORE is locked: Redis would store at the last.
#[test]
fn radius_that_names_two_targets_is_refused_unless_both_are_locked() {
    let (harness, mut wire) = sicily();
    harness.expect(
        &mut wire,
        &[
            ("GEORADIUS Sicily 15 37 200 km STORE a STORE b", "-ERR syntax error\r\n"),
            ("GEORADIUSBYMEMBER Sicily Palermo 200 km STOREDIST STORE STORE b", "-ERR syntax error\r\n"),
            ("EXISTS a b STORE", ":0\r\n"),
            ("GEORADIUS Sicily 15 37 200 km STORE a STOREDIST b", ":2\r\n"),
            ("EXISTS a b", ":1\r\n"),
            ("ZRANGE b 0 -1", "*2\r\n$7\r\nCatania\r\n$7\r\nPalermo\r\n"),
            ("GEORADIUSBYMEMBER Sicily Palermo 200 km STORE STORE", ":3\r\n"),
            ("ZCARD STORE", ":3\r\n"),
        ],
    );
    let keys = harness.line(&mut wire, "COMMAND GETKEYS GEORADIUS Sicily 15 37 200 km STORE a");
    assert_eq!(keys, "*2\r\n$6\r\nSicily\r\n$1\r\na\r\n");
}

#[test]
fn source_may_be_the_target_of_its_own_search() {
    let (harness, mut wire) = sicily();
    harness.expect(
        &mut wire,
        &[
            ("GEOSEARCHSTORE Sicily Sicily FROMMEMBER Palermo BYRADIUS 100 km", ":2\r\n"),
            ("ZRANGE Sicily 0 -1", "*2\r\n$7\r\nPalermo\r\n$5\r\nedge1\r\n"),
            ("GEOSEARCHSTORE Sicily Sicily FROMLONLAT 0 0 BYRADIUS 1 m", ":0\r\n"),
            ("EXISTS Sicily", ":0\r\n"),
        ],
    );
}

/// The example of Valkey's manual, and what is refused.
#[test]
fn polygon_has_its_own_centre_and_its_distances_are_in_metres() {
    let (harness, mut wire) = sicily();
    let corners = "12.41098696654226 38.05033923003755 15.107936245794182 38.00616649901906 18.148439288534455 \
                   38.63804787603499 17.80831874257693 39.50316813110968 12.458468633214036 38.57719533463012";
    let search = |options: &str| format!("GEOSEARCH Sicily BYPOLYGON 5 {corners} {options}");
    let (found, nearest) = (search("ASC WITHDIST"), search("DESC COUNT 1"));
    let (stored, mixed) =
        (format!("GEOSEARCHSTORE d Sicily BYPOLYGON 5 {corners} STOREDIST"), search("FROMMEMBER Palermo"));
    let many = format!("GEOSEARCH Sicily BYPOLYGON 1025{}", " 1 2".repeat(1025));
    harness.expect(
        &mut wire,
        &[
            (&found, "*2\r\n*2\r\n$7\r\nPalermo\r\n$11\r\n166482.0159\r\n*2\r\n$5\r\nedge2\r\n$11\r\n180861.7725\r\n"),
            (&nearest, "*1\r\n$5\r\nedge2\r\n"),
            (&stored, ":2\r\n"),
            ("ZCOUNT d 166482 166483", ":1\r\n"),
            (&mixed, "-ERR syntax error\r\n"),
            ("GEOSEARCH Sicily FROMMEMBER Palermo BYPOLYGON 3 1 1 2 2 3 3", "-ERR syntax error\r\n"),
            ("GEOSEARCH Sicily BYPOLYGON 3 1 1 2 2 3 3 BYRADIUS 1 m", "-ERR syntax error\r\n"),
            ("GEOSEARCH Sicily BYPOLYGON x 1 1 2 2 3 3", "-ERR invalid number of vertices\r\n"),
            ("GEOSEARCH Sicily BYPOLYGON 2 1 1 2 2 3 3", "-ERR GEOSEARCH BYPOLYGON must have at least 3 vertices\r\n"),
            ("GEOSEARCH Sicily BYPOLYGON 4 1 1 2 2 3 3", "-ERR GEOSEARCH BYPOLYGON must have at least 3 vertices\r\n"),
            ("GEOSEARCH Sicily BYPOLYGON 3 1 1 2 2 3 86", "-ERR invalid longitude,latitude pair 3.000000,86.000000\r\n"),
            ("GEOSEARCH none BYPOLYGON 3 1 1 2 2 3 3", "*0\r\n"),
            (&many, "-ERR 1025 vertices are more than the limit of 1024\r\n"),
        ],
    );
}
