//! Sends ten messages and prints where each of them is stored.
//!
//! ```sh
//! staticfire namesrv & staticfire broker -n 127.0.0.1:9876 &
//! cargo run --example produce -- 127.0.0.1:9876 orders
//! ```

use std::error::Error;
use std::time::Duration;

use client::{ClientConfig, Message, Producer};

fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    let mut arguments = std::env::args().skip(1);
    let name_server = arguments.next().unwrap_or_else(|| "127.0.0.1:9876".to_owned());
    let topic = arguments.next().unwrap_or_else(|| "orders".to_owned());
    host::real::run("produce", |_| produce(name_server, topic))?
}

async fn produce(name_server: String, topic: String) -> Result<(), Box<dyn Error + Send + Sync>> {
    let config = ClientConfig::builder().name_servers([name_server]).build()?;
    let producer = Producer::builder("checkout", config).start().await?;
    for number in 0..10 {
        let message =
            Message::new(&topic, format!("order {number}")).with_tags("paid")?.with_keys(&number.to_string())?;
        let receipt = producer.send(message).await?;
        let (queue, offset) = (receipt.queue.id, receipt.queue_offset.0);
        println!("{}: queue {queue}, offset {offset}, {:?}", receipt.message_id, receipt.status);
    }
    producer.shutdown(Duration::from_secs(3)).await;
    Ok(())
}
