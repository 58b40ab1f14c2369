//! Storm's messaging layer: a JVM that sends, another one that receives.

use super::load::{Load, Outcome, Pattern, Went, observe, processor_time};
use crate::Failure;
use crate::drive::new_histogram;
use crate::storm::Storm;

pub(super) fn run(load: &Load) -> Result<Outcome, Failure> {
    let shape = [format!("--size={}", load.size_bytes), format!("--senders={}", load.senders)];
    let words = |task: &str, more: &[String]| [&[task.to_owned()], &shape[..], more].concat();
    let (sender, sender_port) = Storm::start(&words("send", &[]))?;
    let answers = load.pattern == Pattern::PingPong;
    let back = [format!("--back-port={sender_port}"), format!("--answers={answers}")];
    let (receiver, port) = Storm::start(&words("receive", &back))?;
    let load = &Load { warm_up: load.warm_up.max(load.jvm_warm_up), ..*load };
    match load.pattern {
        Pattern::OneWay => {
            sender.send_to("one-way", &port)?;
            observe(load, &[sender.id(), receiver.id()], &|| receiver.count())
        }
        Pattern::PingPong => {
            sender.send_to("ping-pong", &port)?;
            time(load, &sender, &receiver)
        }
    }
}

fn time(load: &Load, sender: &Storm, receiver: &Storm) -> Result<Outcome, Failure> {
    std::thread::sleep(load.warm_up);
    let both = [sender.id(), receiver.id()];
    let before = processor_time(&both)?;
    let timed = sender.time(load.duration)?;
    let cpu = processor_time(&both)?.saturating_sub(before);
    let mut latencies = new_histogram();
    for (value, count) in timed.latencies_ns {
        latencies.saturating_record_n(value, count);
    }
    let took = std::time::Duration::from_nanos(timed.took_ns);
    Ok(Outcome { went: Went { messages: timed.messages, took, cpu }, latencies })
}
