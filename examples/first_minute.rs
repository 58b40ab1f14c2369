//! The first minute with redis-rs: a crate with `redis = "1"`.

use redis::{Commands as _, RedisResult};

fn main() -> RedisResult<()> {
    let port = std::env::args().nth(1).unwrap_or_else(|| "6379".to_owned());
    let client = redis::Client::open(format!("redis://127.0.0.1:{port}/?protocol=resp3"))?;
    let mut connection = client.get_connection()?;

    // Returns when it is on disk.
    let () = connection.set_ex("name", "Ada", 3600)?;
    let name: String = connection.get("name")?;
    let visits: i64 = connection.incr("visits", 1)?;
    println!("name: {name}, visits: {visits}");

    // All or nothing, after a crash as well.
    let (from, to): (i64, i64) =
        redis::pipe().atomic().decr("account:1", 10).incr("account:2", 10).query(&mut connection)?;
    println!("transfer: {from}, {to}");
    Ok(())
}
