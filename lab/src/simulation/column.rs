//! A column of integers, stored in the narrowest type that holds all of them.
//!
//! A run has up to 100,000 calls with nine numbers each, and the page gets these bytes as they are.
//! Storing wide numbers first would take most of the time of a run: new memory is slow to touch.

/// The type of the numbers in a column, in little-endian order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Type {
    /// 0 to 255.
    #[default]
    U8,
    /// 0 to 65,535.
    U16,
    /// 0 to 2^32 - 1.
    U32,
    /// -2^31 to 2^31 - 1.
    I32,
    /// All other integers, as floats: exact up to 2^53.
    F64,
}

/// A column of integers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Column {
    kind: Type,
    bytes: Vec<u8>,
}

/// A column that is being written. Numbers are converted a block at a time, which is faster than
/// one by one.
#[derive(Clone, Debug, Default)]
pub struct ColumnWriter {
    column: Column,
    block: Vec<i64>,
}

/// The number of integers in a block. The blocks of nine columns fit the first cache of a core.
const BLOCK_LEN: usize = 256;

impl Type {
    /// Returns the name, as the page reads it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::U8 => "u8",
            Self::U16 => "u16",
            Self::U32 => "u32",
            Self::I32 => "i32",
            Self::F64 => "f64",
        }
    }

    /// Returns the length of a number in bytes.
    const fn width(self) -> usize {
        match self {
            Self::U8 => 1,
            Self::U16 => 2,
            Self::U32 | Self::I32 => 4,
            Self::F64 => 8,
        }
    }

    /// Returns true if the type holds a number.
    fn holds(self, number: i64) -> bool {
        match self {
            Self::U8 => u8::try_from(number).is_ok(),
            Self::U16 => u16::try_from(number).is_ok(),
            Self::U32 => u32::try_from(number).is_ok(),
            Self::I32 => i32::try_from(number).is_ok(),
            Self::F64 => true,
        }
    }

    /// Returns the narrowest type that holds two numbers, and so all numbers between them.
    fn of(least: i64, most: i64) -> Self {
        let all = [Self::U8, Self::U16, Self::U32, Self::I32];
        let holds = |kind: &Self| kind.holds(least) && kind.holds(most);
        all.into_iter().find(holds).unwrap_or(Self::F64)
    }
}

impl ColumnWriter {
    /// Creates an empty column with room for some numbers of one byte.
    pub fn with_capacity(numbers: usize) -> Self {
        let column = Column { kind: Type::U8, bytes: Vec::with_capacity(numbers) };
        Self { column, block: Vec::with_capacity(BLOCK_LEN) }
    }

    /// Adds a number.
    #[inline]
    pub fn push(&mut self, number: i64) {
        self.block.push(number);
        if self.block.len() >= BLOCK_LEN {
            self.write_block();
        }
    }

    /// Returns the whole column.
    pub fn finish(mut self) -> Column {
        self.write_block();
        self.column
    }

    #[inline(never)]
    fn write_block(&mut self) {
        self.column.append(&self.block);
        self.block.clear();
    }
}

impl Column {
    /// Adds numbers, after a change to a wider type if they need one.
    fn append(&mut self, numbers: &[i64]) {
        let least = numbers.iter().fold(0, |least, number| least.min(*number));
        let most = numbers.iter().fold(0, |most, number| most.max(*number));
        if !self.kind.holds(least) || !self.kind.holds(most) {
            self.widen(least, most);
        }
        // The type holds all numbers, so no conversion loses anything.
        let numbers = numbers.iter().copied();
        let bytes = &mut self.bytes;
        match self.kind {
            Type::U8 => bytes.extend(numbers.map(|number| number as u8)),
            Type::U16 => numbers.for_each(|number| bytes.extend((number as u16).to_le_bytes())),
            Type::U32 => numbers.for_each(|number| bytes.extend((number as u32).to_le_bytes())),
            Type::I32 => numbers.for_each(|number| bytes.extend((number as i32).to_le_bytes())),
            Type::F64 => numbers.for_each(|number| bytes.extend((number as f64).to_le_bytes())),
        }
    }

    /// Changes the type, so that the column can also hold numbers between two bounds.
    #[cold]
    fn widen(&mut self, least: i64, most: i64) {
        let numbers = self.to_vec();
        let least = numbers.iter().fold(least, |least, number| least.min(*number));
        let most = numbers.iter().fold(most, |most, number| most.max(*number));
        let room = self.bytes.capacity() / self.kind.width();
        self.kind = Type::of(least, most);
        self.bytes = Vec::with_capacity(room * self.kind.width());
        self.append(&numbers);
    }

    /// Returns the number of numbers.
    pub const fn len(&self) -> usize {
        self.bytes.len() / self.kind.width()
    }

    /// Returns true if there is no number.
    pub const fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Returns the type.
    pub const fn kind(&self) -> Type {
        self.kind
    }

    /// Returns the bytes.
    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    /// Returns the numbers.
    pub fn to_vec(&self) -> Vec<i64> {
        let numbers = self.bytes.chunks_exact(self.kind.width());
        numbers.map(|bytes| self.number(bytes)).collect()
    }

    /// Decodes a number from its bytes.
    fn number(&self, bytes: &[u8]) -> i64 {
        match (self.kind, bytes) {
            (Type::U8, [byte]) => (*byte).into(),
            (Type::U16, [a, b]) => u16::from_le_bytes([*a, *b]).into(),
            (Type::U32, [a, b, c, d]) => u32::from_le_bytes([*a, *b, *c, *d]).into(),
            (Type::I32, [a, b, c, d]) => i32::from_le_bytes([*a, *b, *c, *d]).into(),
            (_, bytes) => bytes.first_chunk().map_or(0, |bytes| f64::from_le_bytes(*bytes) as i64),
        }
    }
}

impl FromIterator<i64> for Column {
    fn from_iter<T: IntoIterator<Item = i64>>(numbers: T) -> Self {
        let mut column = ColumnWriter::default();
        numbers.into_iter().for_each(|number| column.push(number));
        column.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn column_has_the_narrowest_type_that_holds_its_numbers() {
        let table: [(&[i64], Type, &[u8]); 13] = [
            (&[], Type::U8, &[]),
            (&[0, 255], Type::U8, &[0, 255]),
            (&[256, 1], Type::U16, &[0, 1, 1, 0]),
            (&[65_535], Type::U16, &[255, 255]),
            (&[1, 65_536], Type::U32, &[1, 0, 0, 0, 0, 0, 1, 0]),
            (&[4_294_967_295], Type::U32, &[255; 4]),
            (&[4_294_967_296], Type::F64, &[0, 0, 0, 0, 0, 0, 0xf0, 0x41]),
            (&[-1], Type::I32, &[255; 4]),
            (&[2_147_483_647, -1], Type::I32, &[255, 255, 255, 127, 255, 255, 255, 255]),
            (&[-2_147_483_648], Type::I32, &[0, 0, 0, 128]),
            (&[-2_147_483_649], Type::F64, &[0, 0, 0x20, 0, 0, 0, 0xe0, 0xc1]),
            // The numbers fit single types, but no integer type holds both.
            (
                &[4_294_967_295, -1],
                Type::F64,
                &[0, 0, 0xe0, 0xff, 0xff, 0xff, 0xef, 0x41, 0, 0, 0, 0, 0, 0, 0xf0, 0xbf],
            ),
            // The latest instant of a state: 2^53 - 1 is exact.
            (&[(1 << 53) - 1], Type::F64, &[255, 255, 255, 255, 255, 255, 0x3f, 0x43]),
        ];
        for (numbers, kind, expected) in table {
            let column: Column = numbers.iter().copied().collect();
            assert_eq!(column.kind(), kind, "{numbers:?}");
            assert_eq!((column.len(), column.to_vec().as_slice()), (numbers.len(), numbers));
            assert_eq!(column.into_bytes(), expected, "{numbers:?}");
        }
    }

    #[test]
    fn column_keeps_its_numbers_when_it_gets_wider() {
        for repeated in [1, BLOCK_LEN - 1, BLOCK_LEN, BLOCK_LEN + 1] {
            let numbers = [7, 300, 70_000, -1, 1_000_000_000_000, 7];
            let numbers: Vec<_> =
                numbers.iter().flat_map(|number| vec![*number; repeated]).collect();
            let mut column = ColumnWriter::with_capacity(3);
            numbers.iter().for_each(|number| column.push(*number));
            let column = column.finish();
            assert_eq!(column.to_vec(), numbers);
            assert!(!column.is_empty());
        }
    }
}
