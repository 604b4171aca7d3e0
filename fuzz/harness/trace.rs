//! Any bytes as a trace of any format (the first byte chooses it): an error with a place, or requests that lie on the drive
//! and never go back in time.

use iofair_core::unit::Sectors;
use iofair_trace::clean::Clean;
use iofair_trace::formats::TABLE;
use iofair_trace::input::Input;

/// Sectors of a drive of 1 GiB.
const CAPACITY: Sectors = Sectors(1 << 21);

pub fn trace(data: &[u8]) {
    let Some((format, bytes)) = data.split_first() else { return };
    let format = &TABLE[usize::from(*format) % TABLE.len()];
    let Ok(input) = Input::new(Box::new(std::io::Cursor::new(bytes.to_vec())), "trace") else {
        return;
    };
    let source = match format.open(vec![input]) {
        Ok(source) => source,
        Err(error) => return assert!(error.to_string().starts_with("trace"), "{error}"),
    };
    let (mut clean, mut last) = (Clean::new(source, CAPACITY), 0);
    loop {
        match clean.next_request() {
            Ok(None) => return,
            Ok(Some(request)) => {
                assert!(request.start.0 + request.length.0 <= CAPACITY.0);
                assert!(request.record.at.0 >= last);
                assert!((request.record.stream as usize) < clean.streams().len());
                last = request.record.at.0;
            }
            Err(error) => return assert!(error.to_string().starts_with("trace"), "{error}"),
        }
    }
}
