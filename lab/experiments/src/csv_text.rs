//! CSV files as text.

/// What `write` writes.
pub fn csv_text(write: impl FnOnce(&mut csv::Writer<Vec<u8>>) -> csv::Result<()>) -> String {
    let mut writer = csv::Writer::from_writer(Vec::new());
    write(&mut writer).expect("a vector takes every record of the header's length");
    let bytes = writer.into_inner().expect("a vector never fails to flush");
    String::from_utf8(bytes).expect("only texts were written")
}
