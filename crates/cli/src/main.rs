//! The program `iofair`.

use std::process::ExitCode;

fn main() -> ExitCode {
    iofair_cli::main()
}
