//! Prints the messages of a topic until Ctrl-C, as one member of a group: start it twice, and the two share the queues.
//!
//! ```sh
//! cargo run --example consume -- 127.0.0.1:9876 orders
//! ```

use std::error::Error;
use std::time::Duration;

use client::{ClientConfig, ConcurrentBatch, ConcurrentOutcome, Filter, PushConsumer, StartFrom};

fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    let mut arguments = std::env::args().skip(1);
    let name_server = arguments.next().unwrap_or_else(|| "127.0.0.1:9876".to_owned());
    let topic = arguments.next().unwrap_or_else(|| "orders".to_owned());
    host::real::run("consume", |_| consume(name_server, topic))?
}

async fn consume(name_server: String, topic: String) -> Result<(), Box<dyn Error + Send + Sync>> {
    let config = ClientConfig::builder().name_servers([name_server]).build()?;
    let consumer = PushConsumer::builder("billing", config)
        .subscribe(topic, Filter::tags("paid || refund")?)
        .start_from(StartFrom::Earliest)
        .start_concurrent(bill)
        .await?;
    host::real::stop_signal().await?;
    // What was handled is committed now, and is not delivered again to the member that takes over.
    let report = consumer.shutdown(Duration::from_secs(5)).await;
    println!("committed {} queues", report.committed);
    Ok(())
}

/// Called for batches of different queues side by side. What it does not finish comes again later.
async fn bill(batch: ConcurrentBatch) -> ConcurrentOutcome {
    for message in &batch.messages {
        println!("{} (queue {}): {:?}", message.unique_id(), message.queue().id, message.body());
    }
    ConcurrentOutcome::Success
}
