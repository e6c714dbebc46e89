//! Faults of the network: what lies on which links, and what changes while it lies there.

use std::sync::Arc;

use super::{Cluster, partition};
use crate::{
    net::{Impairment, ImpairmentId, ImpairmentKind, Latency},
    scenario::{Fault, FaultKind, Link, LinkFault, Port, Shape},
    seed::{Domain, name_hash},
    stand::NodeId,
};

const HEAL: Domain = Domain::named("fault.heal-order");

/// Puts a fault of the network into effect; nothing happens for any other. What it puts on links goes when it ends.
pub(super) fn begin(cluster: &Arc<Cluster>, number: usize, fault: &Fault) {
    let impairments = match &fault.kind {
        FaultKind::Cut { link, port, hold } => {
            let kind = if *hold { ImpairmentKind::Hold } else { ImpairmentKind::Drop };
            impair(cluster, &pairs(cluster, link), *port, kind)
        }
        FaultKind::Latency { link, extra } => {
            let latency = Latency::Uniform(extra.least, extra.most);
            impair(cluster, &pairs(cluster, link), None, ImpairmentKind::Latency(latency))
        }
        FaultKind::OnLink { link, port, what } => on_link(cluster, number, (link, *port), *what),
        FaultKind::Partition { shape: Shape::Swizzle, members: Some(members), .. } => {
            let (cluster, members) = (Arc::clone(cluster), members.names().to_vec());
            cluster.stand.clone().spawn(async move { swizzle(&cluster, number, &members).await });
            Vec::new()
        }
        FaultKind::Partition { shape, node, members } => {
            let kind = if *shape == Shape::Clog { ImpairmentKind::Hold } else { ImpairmentKind::Drop };
            let members = members.as_ref().map_or(&[][..], |members| members.names());
            let everyone = cluster.plan.scenario.end_of_link("*");
            let cut = partition::cut(*shape, node.as_deref(), members, &everyone);
            impair(cluster, &both_ways(cluster, &cut), None, kind)
        }
        FaultKind::AcceptFull { node } => connects(cluster, "*", node),
        FaultKind::ConnectHang { node } => connects(cluster, node, "*"),
        _ => Vec::new(),
    };
    cluster.keep(number, &impairments);
}

fn on_link(
    cluster: &Arc<Cluster>,
    number: usize,
    (link, port): (&Link, Option<Port>),
    what: LinkFault,
) -> Vec<ImpairmentId> {
    let pairs = pairs(cluster, link);
    let kind = match what {
        LinkFault::Loss(ppm) => ImpairmentKind::Loss(ppm),
        LinkFault::Bandwidth(bytes_per_second) => ImpairmentKind::Bandwidth(bytes_per_second),
        LinkFault::Slow(factor) => ImpairmentKind::Slow(factor),
        LinkFault::Reset => {
            let reset = cluster.stand.reset(pairs, port.map(Port::number));
            cluster.count_hits(number, reset);
            return Vec::new();
        }
        LinkFault::Flap { up, down } => {
            let cluster = Arc::clone(cluster);
            cluster.stand.clone().spawn(async move {
                while cluster.is_in_effect(number) {
                    let cut = impair(&cluster, &pairs, port, ImpairmentKind::Drop);
                    cluster.keep(number, &cut);
                    cluster.stand.sleep(down.least).await;
                    cluster.lift(number, &cut);
                    cluster.stand.sleep(up.least).await;
                }
            });
            return Vec::new();
        }
    };
    impair(cluster, &pairs, port, kind)
}

/// Isolates the members one by one within the first third of the time, and lets them back one by one within the last,
/// in an order that depends on nothing but their names and the seed.
async fn swizzle(cluster: &Arc<Cluster>, number: usize, members: &[String]) {
    let begin = cluster.stand.now();
    let third = cluster.end_of(number).saturating_sub(begin) / 3;
    let step = third / u32::try_from(members.len().max(1)).unwrap_or(u32::MAX);
    let everyone = cluster.plan.scenario.end_of_link("*");
    let mut cuts = Vec::new();
    for (member, at) in members.iter().zip(0_u32..) {
        cluster.stand.sleep_until(begin + step * at).await;
        if !cluster.is_in_effect(number) {
            return;
        }
        let alone = partition::cut(Shape::Isolate, Some(member), &[], &everyone);
        let cut = impair(cluster, &both_ways(cluster, &alone), None, ImpairmentKind::Drop);
        cluster.keep(number, &cut);
        cuts.push((member, cut));
    }
    let (seed, fault) = (cluster.plan.seeds.net, name_hash(&cluster.plan.scenario.faults[number].id));
    cuts.sort_by_cached_key(|(member, _)| seed.draw(HEAL, fault, name_hash(member)).0);
    for ((_, cut), at) in cuts.iter().zip(1_u32..) {
        cluster.stand.sleep_until(begin + third * 2 + step * at).await;
        cluster.lift(number, cut);
    }
}

fn connects(cluster: &Cluster, from: &str, to: &str) -> Vec<ImpairmentId> {
    let link = Link { from: from.to_owned(), to: to.to_owned(), both: false };
    impair(cluster, &pairs(cluster, &link), None, ImpairmentKind::NoConnects)
}

fn impair(
    cluster: &Cluster,
    pairs: &[(NodeId, NodeId)],
    port: Option<Port>,
    kind: ImpairmentKind,
) -> Vec<ImpairmentId> {
    let port = port.map(Port::number);
    let impairment = |&(from, to)| cluster.stand.impair(Impairment { from, to, port, kind });
    pairs.iter().map(impairment).collect()
}

/// The directed pairs of nodes that a link names.
fn pairs(cluster: &Cluster, link: &Link) -> Vec<(NodeId, NodeId)> {
    let ends = |end: &str| -> Vec<NodeId> {
        cluster.plan.scenario.end_of_link(end).iter().map(|node| cluster.id(node)).collect()
    };
    let (from, to) = (ends(&link.from), ends(&link.to));
    let mut pairs: Vec<(NodeId, NodeId)> =
        from.iter().flat_map(|&from| to.iter().map(move |&to| (from, to))).filter(|(from, to)| from != to).collect();
    if link.both {
        pairs.extend(pairs.clone().into_iter().map(|(from, to)| (to, from)));
    }
    pairs.sort_unstable();
    pairs.dedup();
    pairs
}

fn both_ways(cluster: &Cluster, cut: &[(String, String)]) -> Vec<(NodeId, NodeId)> {
    let ids = cut.iter().map(|(one, other)| (cluster.id(one), cluster.id(other)));
    let mut pairs: Vec<_> = ids.flat_map(|(one, other)| [(one, other), (other, one)]).collect();
    pairs.sort_unstable();
    pairs.dedup();
    pairs
}
