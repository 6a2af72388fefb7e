//! The network: delay, loss, reordering, repetition and a bottleneck before each device, from a seed.

use std::collections::BTreeMap;
use std::time::Duration;

use outpour_core::Time;
use outpour_push::*;
use rand_core::{RngCore as _, SeedableRng as _};
use rand_pcg::Pcg64Mcg;

pub(crate) const MS: Duration = Duration::from_millis(1);
pub(crate) const URI: &str = "object";

/// What the network does to messages.
#[derive(Clone, Debug)]
pub(crate) struct Net {
    /// One way.
    pub(crate) delay: Duration,
    /// Added at random up to this, which reorders.
    pub(crate) jitter: Duration,
    /// Share of packets lost on the way from sources to receivers.
    pub(crate) data_loss: f64,
    /// Share of all other messages lost.
    pub(crate) other_loss: f64,
    /// Share of messages that come twice.
    pub(crate) twice: f64,
    /// Packets per second into a device.
    pub(crate) rate: f64,
    /// Packets that wait before a device are marked beyond this, and dropped beyond ten times as many.
    pub(crate) mark_at: f64,
    /// Added to the way of packets of the flow in seat 0.
    pub(crate) detour: Duration,
    /// Share of packets whose fields are turned at random.
    pub(crate) garbled: f64,
}

impl Default for Net {
    fn default() -> Self {
        Self {
            delay: 5 * MS,
            jitter: Duration::ZERO,
            data_loss: 0.0,
            other_loss: 0.0,
            twice: 0.0,
            rate: 20_000.0,
            mark_at: 30.0,
            detour: Duration::ZERO,
            garbled: 0.0,
        }
    }
}

#[derive(Clone, Debug)]
pub(crate) enum Parcel {
    Controller(ToController),
    Receiver(DeviceId, ToReceiver),
    Source(SourceId, ToSource),
    Data(DeviceId, Data, bool),
    /// From a device to whoever has the flow.
    Ack(Ack),
    FinToSource(FlowId),
    FinAckToSource(FlowId),
    FinToDevice(DeviceId, FlowId),
    FinAckToDevice(DeviceId, FlowId),
}

/// All machines, and what is under way between them.
pub(crate) struct World {
    pub(crate) now: Time,
    pub(crate) net: Net,
    pub(crate) controller: Controller,
    pub(crate) sources: BTreeMap<SourceId, Source>,
    pub(crate) receivers: BTreeMap<DeviceId, Receiver>,
    /// When the last packet was sent to each device.
    pub(crate) last_data: BTreeMap<DeviceId, Time>,
    /// How many packets were sent.
    pub(crate) packets: u64,
    /// Acknowledgements go through this before they leave.
    pub(crate) forge: Option<fn(&mut Ack)>,
    /// A digest of everything that arrived, with its time.
    pub(crate) trace: u64,
    /// Which flows reached whom.
    pub(crate) seats: std::collections::BTreeSet<(DeviceId, FlowId)>,
    /// Why flows ended, as their sources said.
    pub(crate) ends: Vec<(FlowId, FlowEnd)>,
    queue: BTreeMap<(Time, u64), Parcel>,
    busy: BTreeMap<DeviceId, Time>,
    serial: u64,
    pub(crate) random: Pcg64Mcg,
}

impl World {
    pub(crate) fn new(seed: u64, net: Net, options: ControllerOptions) -> Self {
        let options = ControllerOptions { seed, ..options };
        Self {
            now: Time::ZERO,
            net,
            controller: Controller::new(options, Time::ZERO).unwrap(),
            sources: BTreeMap::new(),
            receivers: BTreeMap::new(),
            last_data: BTreeMap::new(),
            packets: 0,
            forge: None,
            trace: 0,
            seats: std::collections::BTreeSet::new(),
            ends: Vec::new(),
            queue: BTreeMap::new(),
            busy: BTreeMap::new(),
            serial: 0,
            random: Pcg64Mcg::seed_from_u64(seed ^ 0xfeed),
        }
    }

    /// The controller loses its memory: another of this epoch takes its place.
    pub(crate) fn restart_controller(&mut self, epoch: u32) {
        let options = ControllerOptions {
            seed: self.random.next_u64(),
            epoch,
            ..ControllerOptions::default()
        };
        self.controller = Controller::new(options, self.now).unwrap();
    }

    /// A source that has the object.
    pub(crate) fn source(&mut self, id: u32, layout: Layout, options: Option<SourceOptions>) {
        let mut options = options.unwrap_or_else(|| SourceOptions::new(SourceId(id)));
        options.source = SourceId(id);
        options.seed = self.random.next_u64();
        let mut source = Source::new(options, self.now).unwrap();
        source.hold(URI, layout).unwrap();
        self.sources.insert(SourceId(id), source);
        self.drain();
    }

    /// A device that wants the object.
    pub(crate) fn receiver(&mut self, id: u64, options: Option<ReceiverOptions>, is_coded: bool) {
        let device = DeviceId(id);
        let mut options = options.unwrap_or_else(|| ReceiverOptions::new(URI, device));
        options.device = device;
        let decoder: Box<dyn Decoder> = match is_coded {
            true => Box::new(ChanceDecoder::new(self.random.next_u64())),
            false => Box::new(ExactDecoder::default()),
        };
        let receiver = Receiver::new(options, decoder, self.now).unwrap();
        self.receivers.insert(device, receiver);
        self.drain();
    }

    fn unit(&mut self) -> f64 {
        (self.random.next_u64() >> 11) as f64 / (1_u64 << 53) as f64
    }

    fn post(&mut self, mut parcel: Parcel) {
        let is_data = matches!(parcel, Parcel::Data(..));
        let loss = if is_data {
            self.net.data_loss
        } else {
            self.net.other_loss
        };
        let copies = if self.net.twice > 0.0 && self.unit() < self.net.twice {
            2
        } else {
            1
        };
        for _ in 0..copies {
            if loss > 0.0 && self.unit() < loss {
                continue;
            }
            let mut at = self.now + self.net.delay;
            let jitter = match self.net.jitter.is_zero() {
                true => Duration::ZERO,
                false => self.net.jitter.mul_f64(self.unit()),
            };
            if let Parcel::Data(device, data, is_marked) = &mut parcel {
                // The bottleneck before the device.
                let busy = self.busy.entry(*device).or_default();
                let waits = busy.since(at).as_secs_f64() * self.net.rate;
                if waits > self.net.mark_at * 10.0 {
                    continue;
                }
                *is_marked = waits > self.net.mark_at;
                *busy = (*busy).max(at) + Duration::from_secs_f64(1.0 / self.net.rate);
                at = *busy;
                if data.flow.seat == 0 {
                    at += self.net.detour;
                }
                if self.net.garbled > 0.0 {
                    let mut data = *data;
                    let draw = self.random.next_u64();
                    if (draw >> 11) as f64 / (1_u64 << 53) as f64 <= self.net.garbled {
                        garble(&mut data, &mut self.random);
                        let parcel = Parcel::Data(*device, data, draw & 1 == 1);
                        self.serial += 1;
                        self.queue.insert((at + jitter, self.serial), parcel);
                        continue;
                    }
                }
            }
            self.serial += 1;
            self.queue
                .insert((at + jitter, self.serial), parcel.clone());
        }
    }

    /// Everything that machines want sent now.
    pub(crate) fn drain(&mut self) {
        let now = self.now;
        let mut parcels = Vec::new();
        while let Some(output) = self.controller.poll_transmit(now) {
            parcels.push(match output {
                ControllerOutput::Receiver(device, it) => Parcel::Receiver(device, it),
                ControllerOutput::Source(source, it) => Parcel::Source(source, it),
            });
        }
        for source in self.sources.values_mut() {
            while let Some(output) = source.poll_transmit(now) {
                parcels.push(match output {
                    SourceOutput::Controller(it) => {
                        if let ToController::Ended { flow, end, .. } = it {
                            self.ends.push((flow, end));
                        }
                        Parcel::Controller(it)
                    }
                    SourceOutput::Data(device, data) => {
                        self.packets += 1;
                        self.last_data.insert(device, now);
                        Parcel::Data(device, data, false)
                    }
                    SourceOutput::Fin(device, flow) => Parcel::FinToDevice(device, flow),
                    SourceOutput::FinAck(device, flow) => Parcel::FinAckToDevice(device, flow),
                });
            }
        }
        for receiver in self.receivers.values_mut() {
            while let Some(output) = receiver.poll_transmit(now) {
                parcels.push(match output {
                    ReceiverOutput::Controller(it) => Parcel::Controller(it),
                    ReceiverOutput::Ack(ack) => Parcel::Ack(ack),
                    ReceiverOutput::Fin(flow) => Parcel::FinToSource(flow),
                    ReceiverOutput::FinAck(flow) => Parcel::FinAckToSource(flow),
                });
            }
        }
        for parcel in parcels {
            self.send(parcel);
        }
    }

    fn send(&mut self, mut parcel: Parcel) {
        if let (Parcel::Ack(ack), Some(forge)) = (&mut parcel, self.forge) {
            forge(ack);
        }
        self.post(parcel);
    }

    fn deliver(&mut self, parcel: Parcel) {
        let now = self.now;
        match &parcel {
            Parcel::Controller(it) => self.controller.handle_message(now, it),
            Parcel::Receiver(device, it) => {
                if let Some(to) = self.receivers.get_mut(device) {
                    to.handle_controller(now, it);
                }
            }
            Parcel::Source(source, it) => {
                if let Some(to) = self.sources.get_mut(source) {
                    to.handle_controller(now, it);
                }
            }
            Parcel::Data(device, data, is_marked) => {
                self.seats.insert((*device, data.flow));
                let to = self.receivers.get_mut(device);
                if let Some(ack) = to.and_then(|it| it.handle_data(now, data, *is_marked, &[])) {
                    self.send(Parcel::Ack(ack));
                }
            }
            Parcel::Ack(ack) => self
                .sources
                .values_mut()
                .for_each(|it| it.handle_ack(now, ack)),
            Parcel::FinToSource(id) => self.sources.values_mut().for_each(|it| it.handle_fin(*id)),
            Parcel::FinAckToSource(id) => {
                self.sources
                    .values_mut()
                    .for_each(|it| it.handle_fin_ack(*id));
            }
            Parcel::FinToDevice(device, flow) => {
                if let Some(to) = self.receivers.get_mut(device) {
                    to.handle_fin(*flow);
                }
            }
            Parcel::FinAckToDevice(device, flow) => {
                if let Some(to) = self.receivers.get_mut(device) {
                    to.handle_fin_ack(*flow);
                }
            }
        }
    }

    /// Goes on to the next event. False if there is none before `until`.
    pub(crate) fn step(&mut self, until: Time) -> bool {
        let wakes = self.sources.values().filter_map(Source::wake_at);
        let wakes = wakes.chain(self.receivers.values().filter_map(Receiver::wake_at));
        let wake = wakes
            .chain(self.controller.wake_at())
            .min()
            .unwrap_or(Time::MAX);
        let arrival = self.queue.first_key_value().map_or(Time::MAX, |it| it.0.0);
        let next = wake.min(arrival);
        if next > until {
            self.now = until;
            return false;
        }
        assert!(next >= self.now || wake <= self.now, "time went back");
        self.now = self.now.max(next);
        if arrival <= next {
            let (_, parcel) = self.queue.pop_first().unwrap();
            let text = format!("{}{parcel:?}", self.now.0);
            for byte in text.bytes() {
                self.trace = (self.trace ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
            }
            self.deliver(parcel);
        } else {
            let now = self.now;
            self.sources.values_mut().for_each(|it| it.handle_wake(now));
            self.receivers
                .values_mut()
                .for_each(|it| it.handle_wake(now));
            self.controller.handle_wake(now);
        }
        self.drain();
        true
    }

    pub(crate) fn run_until(&mut self, until: Time) {
        let mut idle = 0;
        let mut last = self.now;
        while self.step(until) {
            idle = if self.now == last { idle + 1 } else { 0 };
            last = self.now;
            assert!(
                idle < 100_000,
                "machines keep waking at {last} and do nothing"
            );
        }
    }

    pub(crate) fn run_for(&mut self, time: Duration) {
        self.run_until(self.now + time);
    }

    /// Runs until every receiver is over, and says whether that happened before `until`.
    pub(crate) fn finish(&mut self, until: Time) -> bool {
        while self.receivers.values().any(|it| it.end().is_none()) {
            if !self.step(until) {
                return false;
            }
        }
        true
    }

    pub(crate) fn device(&self, id: u64) -> &Receiver {
        &self.receivers[&DeviceId(id)]
    }
}

fn garble(data: &mut Data, random: &mut Pcg64Mcg) {
    let draw = random.next_u64();
    let value = random.next_u64() >> (random.next_u64() % 64);
    match draw % 5 {
        0 => data.flow.task = TaskId(value),
        1 => data.flow.seat = value as u32,
        2 => data.number = value,
        3 => data.block = value as u32,
        _ => data.symbol = value as u32,
    }
}

pub(crate) fn secs(seconds: f64) -> Time {
    Time::from_secs_f64(seconds)
}
