//! Pool, memory for receiving and memory for waiting together, with the rules of overload.

use sluice_flow::overload::admission::{Arrival, admit};
use sluice_flow::overload::{Backend, DeliveryState, Policy, PoolState};

use super::*;

const MIB: usize = 1 << 20;
const RECEIVING_BYTES: usize = 64 * MIB;
const POOL_BYTES: u64 = 150 << 20;

fn healthy(lag_bytes: u64) -> DeliveryState {
    let backend = Backend {
        in_outage: false,
        stands_still: false,
        is_outpaced: false,
        is_short_of_cpu: false,
        is_moving: true,
        taken_share: 1.0,
    };
    DeliveryState {
        policy: Policy::Backpressure,
        is_best_effort: false,
        limit_bytes: u64::MAX,
        lag_bytes,
        unread_bytes: 0,
        private_bytes: 0,
        is_far_behind: false,
        backend,
    }
}

/// A pool and routes, each with one healthy delivery and its lag, admitted as the intake does it.
struct World {
    pool: PoolState,
    receiving: Arc<ReceivingBudget>,
    routes: Vec<(Arc<RouteMemory>, u64)>,
}

impl World {
    fn new(routes: usize) -> World {
        let receiving = ReceivingBudget::new(RECEIVING_BYTES);
        let pool = PoolState {
            limit_bytes: POOL_BYTES,
            room_bytes: POOL_BYTES,
            used_bytes: 0,
            firm_bytes: 0,
            deliveries: routes,
        };
        let routes = (0..routes).map(|_| (RouteMemory::new(receiving.clone()), 0)).collect();
        World { pool, receiving, routes }
    }

    fn may_enter(&self, index: usize, bytes: usize) -> bool {
        let (memory, lag_bytes) = &self.routes[index];
        let arrival = Arrival {
            own_bytes: bytes as u64,
            bytes: (self.receiving.used_bytes() + bytes) as u64,
            route_bytes: (memory.used_bytes() + bytes) as u64,
            beside_bytes: self.receiving.limit_bytes() as u64,
            is_cpu_bound: false,
            may_be_paced: false,
        };
        admit(&self.pool, arrival, [((), healthy(*lag_bytes))].into_iter()).is_ok()
    }

    fn admit(&self, index: usize, bytes: usize) -> Option<Permit> {
        let permit = || Permit::take(self.routes[index].0.clone(), bytes).ok();
        self.may_enter(index, bytes).then(permit).flatten()
    }

    /// A body that arrives while its request waits.
    fn waiting(&self, bytes: usize) -> Option<Permit> {
        let receiving = self.receiving.clone();
        Permit::take(Arc::new(WaitingMemory { receiving, is_sender_known: true }), bytes).ok()
    }

    fn append(&mut self, index: usize, permit: Permit) {
        self.pool.used_bytes += permit.bytes() as u64;
        self.routes[index].1 += permit.bytes() as u64;
    }
}

/// Scenario: twenty routes have filled the pool to their fair shares. Then requests of all are on
/// their way, in all memory for receiving and for waiting, and enter; and bodies fill the memory
/// for waiting again. Guarantee: together they keep the sum of the three limits.
#[test]
fn pool_receiving_and_waiting_together_keep_the_sum_of_their_limits() {
    const ROUTES: usize = 20;
    const BYTES: usize = 250 << 10;
    let mut world = World::new(ROUTES);
    let share = world.pool.fair_share_bytes();
    for index in 0..ROUTES {
        while world.routes[index].1 + BYTES as u64 <= share {
            let permit = world.admit(index, BYTES).expect("has room");
            world.append(index, permit);
        }
    }
    let mut on_their_way = Vec::new();
    let mut refused = 0;
    for index in (0..ROUTES).cycle() {
        match world.admit(index, BYTES) {
            Some(permit) => {
                on_their_way.push((index, permit));
                refused = 0;
            }
            None if refused == ROUTES => break,
            None => refused += 1,
        }
    }
    assert!(!on_their_way.is_empty());
    for index in (0..ROUTES).cycle() {
        let Some(body) = world.waiting(BYTES).filter(|_| world.may_enter(index, BYTES)) else {
            break;
        };
        let memory = world.routes[index].0.clone();
        on_their_way.push((index, ArrivedMemory::take_over(memory, body)));
    }
    on_their_way.into_iter().for_each(|(index, permit)| world.append(index, permit));
    let pool_bytes = world.pool.used_bytes as usize;
    assert!((0..ROUTES).all(|index| world.admit(index, 1).is_none()), "the pool is full");
    let waits: Vec<_> = std::iter::from_fn(|| world.waiting(BYTES)).collect();
    let with_small_bytes = RECEIVING_BYTES + RECEIVING_BYTES / SMALL_REQUESTS_PART;
    let planned = POOL_BYTES as usize + 2 * with_small_bytes;
    let sum = pool_bytes + waits.len() * BYTES;
    assert!(sum <= planned, "{} of {} MiB", sum / MIB, planned / MIB);
    assert!(pool_bytes <= POOL_BYTES as usize + with_small_bytes, "{} MiB", pool_bytes / MIB);
}
