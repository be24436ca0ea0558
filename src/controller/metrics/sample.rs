//! Values of metrics, and their text in the format of `OpenMetrics`.

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric as _, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};

use super::list::{GROUPS, Kind, Metric};

/// `Content-Type` of the text.
pub(crate) const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// A word that is not in the list of a label.
pub(super) const OTHER: &str = "Other";

/// From seconds to hours: steps on a node.
pub(super) const STEP_BOUNDS: [f64; 9] = [5.0, 15.0, 60.0, 120.0, 300.0, 600.0, 1_800.0, 3_600.0, 21_600.0];
/// From a tenth of a millisecond to seconds: decisions.
pub(super) const DECISION_BOUNDS: [f64; 7] = [0.000_1, 0.001, 0.005, 0.01, 0.05, 0.1, 1.0];

pub(super) type Samples = Vec<Sample>;

/// The value of a series.
#[derive(Clone, Debug)]
pub(crate) struct Sample {
    pub(super) metric: &'static Metric,
    /// In the order of the metric's labels.
    pub(super) labels: Vec<String>,
    value: Value,
}

#[derive(Clone, Debug)]
enum Value {
    Number(f64),
    Histogram(Histogram),
}

impl Sample {
    pub(super) fn of(metric: &'static Metric, value: f64) -> Self {
        Self {
            metric,
            labels: Vec::new(),
            value: Value::Number(value),
        }
    }

    pub(super) fn count(metric: &'static Metric, value: usize) -> Self {
        #[expect(clippy::cast_precision_loss, reason = "counts below 2^52")]
        let value = value as f64;
        Self::of(metric, value)
    }

    pub(super) fn total(metric: &'static Metric, value: u64) -> Self {
        Self::count(metric, usize::try_from(value).unwrap_or(usize::MAX))
    }

    pub(super) fn flag(metric: &'static Metric, value: bool) -> Self {
        Self::of(metric, if value { 1.0 } else { 0.0 })
    }

    pub(super) fn histogram(metric: &'static Metric, histogram: &Histogram) -> Self {
        Self {
            metric,
            labels: Vec::new(),
            value: Value::Histogram(histogram.clone()),
        }
    }

    /// With the next label.
    pub(super) fn with(mut self, value: impl Into<String>) -> Self {
        self.labels.push(value.into());
        self
    }

    /// Number of series of the sample.
    #[cfg(test)]
    pub(super) fn series(&self) -> usize {
        match &self.value {
            Value::Number(_) => 1,
            // The most that one has: its bounds, infinity, count and sum.
            Value::Histogram(_) => STEP_BOUNDS.len().max(DECISION_BOUNDS.len()) + 3,
        }
    }

    fn encode(&self, encoder: &mut MetricEncoder<'_>) -> fmt::Result {
        let labels: Vec<(&str, &str)> = self
            .metric
            .labels
            .iter()
            .copied()
            .zip(self.labels.iter().map(String::as_str))
            .collect();
        if self.metric.kind == Kind::Info {
            return encoder.encode_info(&labels);
        }
        let mut series = encoder.encode_family(&labels)?;
        match (&self.value, self.metric.kind) {
            (Value::Histogram(histogram), _) => histogram.encode(series),
            (Value::Number(value), Kind::Counter) => series.encode_counter::<NoLabelSet, _, f64>(value, None),
            (Value::Number(value), _) => series.encode_gauge(value),
        }
    }
}

pub(super) fn text(samples: Vec<Sample>) -> Result<String, fmt::Error> {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Encoded(samples)));
    let mut text = String::new();
    encode(&mut text, &registry)?;
    Ok(text)
}

#[derive(Debug)]
struct Encoded(Vec<Sample>);

impl Collector for Encoded {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        for metric in GROUPS.iter().flat_map(|(_, metrics)| metrics.iter().copied()) {
            let mut samples = self
                .0
                .iter()
                .filter(|sample| sample.metric.name == metric.name)
                .peekable();
            if samples.peek().is_none() {
                continue;
            }
            let name = metric.name;
            // The encoder appends `_total` and `_info`.
            let name = match metric.kind {
                Kind::Counter => name.strip_suffix("_total").unwrap_or(name),
                Kind::Info => name.strip_suffix("_info").unwrap_or(name),
                Kind::Gauge | Kind::Histogram => name,
            };
            // The encoder adds the unit, which OpenMetrics wants at the end of the name.
            let units = [("_seconds", Unit::Seconds), ("_bytes", Unit::Bytes)];
            let unit = units
                .into_iter()
                .find_map(|(suffix, unit)| Some((name.strip_suffix(suffix)?, unit)));
            let (name, unit) = unit.map_or((name, None), |(name, unit)| (name, Some(unit)));
            let kind = match metric.kind {
                Kind::Counter => MetricType::Counter,
                Kind::Gauge => MetricType::Gauge,
                Kind::Info => MetricType::Info,
                Kind::Histogram => MetricType::Histogram,
            };
            let mut family = encoder.encode_descriptor(name, metric.help, unit.as_ref(), kind)?;
            for sample in samples {
                sample.encode(&mut family)?;
            }
        }
        Ok(())
    }
}
