//! Reads requests, also those with bytes that are not UTF-8.
//!
//! Envoy writes header fields into descriptors as its clients send them. Protobuf allows only
//! UTF-8, and Envoy passes requests that its rate limit service cannot read: one byte would lift
//! all limits.

use std::str::from_utf8;
use std::sync::Arc;

use bytes::Buf as _;
use envoy_types::pb::envoy::service::ratelimit::v3::{RateLimitRequest, RateLimitResponse};
use prost::Message as _;
use prost::encoding::{WireType, decode_key, decode_varint};
use tonic::Status;
use tonic::codec::{self, BufferSettings, DecodeBuf};
use tonic_prost::ProstEncoder;

use crate::metrics::{Metrics, Protocol, Refusal};

/// The sizes of buffers: most messages are shorter, and allocators are fast up to here.
const BUFFER_BYTES: usize = 1_000;
const YIELD_BYTES: usize = 32 * 1024;

/// Reads requests and writes responses.
#[derive(Debug, Clone)]
pub(super) struct Codec {
    metrics: Arc<Metrics>,
}

impl Codec {
    pub fn new(metrics: Arc<Metrics>) -> Self {
        Self { metrics }
    }
}

impl codec::Codec for Codec {
    type Encode = RateLimitResponse;
    type Decode = RateLimitRequest;
    type Encoder = ProstEncoder<RateLimitResponse>;
    type Decoder = Decoder;

    fn encoder(&mut self) -> Self::Encoder {
        ProstEncoder::new(BufferSettings::new(BUFFER_BYTES, YIELD_BYTES))
    }

    fn decoder(&mut self) -> Decoder {
        Decoder { metrics: self.metrics.clone() }
    }
}

/// Reads requests.
#[derive(Debug)]
pub(super) struct Decoder {
    metrics: Arc<Metrics>,
}

impl codec::Decoder for Decoder {
    type Item = RateLimitRequest;
    type Error = Status;

    fn decode(&mut self, source: &mut DecodeBuf<'_>) -> Result<Option<RateLimitRequest>, Status> {
        let length = source.remaining();
        // A message is in one piece.
        let decoded = RateLimitRequest::decode(source.chunk());
        let request = decoded.or_else(|_| {
            let mut bytes = source.chunk().to_vec();
            replace(&mut bytes, REQUEST);
            RateLimitRequest::decode(&*bytes)
        });
        source.advance(length);
        request.map(Some).map_err(|_| {
            self.metrics.refused(Protocol::Grpc, Refusal::Invalid);
            Status::invalid_argument("invalid message: expected a RateLimitRequest")
        })
    }

    fn buffer_settings(&self) -> BufferSettings {
        BufferSettings::new(BUFFER_BYTES, YIELD_BYTES)
    }
}

/// The fields of a message that are or contain text.
type Fields = &'static [(u32, Kind)];

#[derive(Clone, Copy)]
enum Kind {
    Text,
    Message(Fields),
}

const ENTRY: Fields = &[(1, Kind::Text), (2, Kind::Text)];
const DESCRIPTOR: Fields = &[(1, Kind::Message(ENTRY))];
const REQUEST: Fields = &[(1, Kind::Text), (2, Kind::Message(DESCRIPTOR))];

/// Replaces each byte that is not part of UTF-8 in the texts of a message by `?`, so that all
/// lengths stay. Ends at the first field that cannot be read.
fn replace(message: &mut [u8], fields: Fields) {
    let mut rest = message;
    while let Some(((number, length), after)) = next(rest) {
        let Some((value, others)) = rest
            .split_at_mut_checked(after)
            .and_then(|(_, tail)| tail.split_at_mut_checked(length))
        else {
            return;
        };
        match fields.iter().find(|(other, _)| *other == number) {
            Some((_, Kind::Text)) => into_utf8(value),
            Some((_, Kind::Message(inner))) => replace(value, inner),
            None => {}
        }
        rest = others;
    }
}

/// Returns the number and the length of a field, and the place of its value. Only a field with a
/// length has a number.
fn next(message: &[u8]) -> Option<((u32, usize), usize)> {
    let mut rest = message;
    let (number, wire) = decode_key(&mut rest).ok()?;
    let at = |rest: &[u8]| message.len() - rest.len();
    let bytes = |length| Some(((0, length), at(rest)));
    match wire {
        WireType::LengthDelimited => {
            let length = usize::try_from(decode_varint(&mut rest).ok()?).ok()?;
            Some(((number, length), at(rest)))
        }
        WireType::Varint => {
            decode_varint(&mut rest).ok()?;
            Some(((0, 0), at(rest)))
        }
        WireType::ThirtyTwoBit => bytes(4),
        WireType::SixtyFourBit => bytes(8),
        WireType::StartGroup | WireType::EndGroup => None,
    }
}

fn into_utf8(text: &mut [u8]) {
    let mut at = 0;
    while let Err(error) = from_utf8(&text[at..]) {
        let begin = at + error.valid_up_to();
        let end = error.error_len().map_or(text.len(), |length| begin + length);
        text[begin..end].fill(b'?');
        at = end;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use envoy_types::pb::envoy::extensions::common::ratelimit::v3::RateLimitDescriptor;
    use envoy_types::pb::envoy::extensions::common::ratelimit::v3::rate_limit_descriptor::Entry;
    use proptest::prelude::*;

    fn request(value: &str) -> RateLimitRequest {
        let entry = Entry { key: "user".to_owned(), value: value.to_owned() };
        let one = RateLimitDescriptor { entries: vec![entry], ..RateLimitDescriptor::default() };
        let two = RateLimitDescriptor { is_negative_hits: true, ..one.clone() };
        let domain = "api".to_owned();
        RateLimitRequest { domain, descriptors: vec![one, two], hits_addend: 300 }
    }

    #[test]
    fn bytes_that_are_not_utf8_become_question_marks() {
        let table: [(&[u8], &str); 5] = [
            (b"a\xff", "a?"),
            (b"\xff\xfe\xc3\xa4", "??\u{e4}"),
            (b"\xf0\x9f\x98", "???"),
            (b"\xed\xa0\x80b", "???b"),
            (b"plain", "plain"),
        ];
        for (bytes, text) in table {
            let mark = "#".repeat(bytes.len());
            let mut message = request(&mark).encode_to_vec();
            for at in 0..message.len() - bytes.len() {
                if message[at..].starts_with(mark.as_bytes()) {
                    message[at..at + bytes.len()].copy_from_slice(bytes);
                }
            }
            replace(&mut message, REQUEST);
            assert_eq!(RateLimitRequest::decode(&*message), Ok(request(text)), "{bytes:?}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_panic(mut bytes: Vec<u8>) {
            let length = bytes.len();
            replace(&mut bytes, REQUEST);
            prop_assert_eq!(bytes.len(), length);
        }
    }
}
