//! The machine of an experiment file: a machine by its name and single values of its host, and stripes of drives.

use iofair_config::{ConfigError, Source, Spanned};
use iofair_core::controller::{FlushRule, Stack};
use iofair_drive::profile;
use iofair_drive::stripe::Geometry;
use iofair_simulator::host::{self, apply};
use iofair_simulator::machine::{self, Machine, base, drive_error};
use iofair_simulator::scenario::{Host, StripeSpec};

use super::file::{ExperimentFile, StripeFile, VariantFile};
use super::numbers::Numbers;

/// What flushes pass: nothing, unless the scheduler asks for them.
pub(super) fn flushes(stack: &Stack) -> FlushRule {
    if stack.schedules_flushes() { FlushRule::Scheduled } else { FlushRule::Bypass }
}

pub(super) fn stripe(file: &Spanned<StripeFile>) -> StripeSpec {
    let file = file.get_ref();
    let geometry = Geometry { drives: file.drives, chunk: file.chunk.sectors_ceil() };
    StripeSpec { geometry, control: file.control }
}

/// The machine that a file names.
pub(super) fn named(
    source: &Source,
    name: Option<&Spanned<String>>,
    numbers: Option<&Numbers>,
) -> Result<Option<Machine>, ConfigError> {
    let Some(name) = name else { return Ok(None) };
    let machine = load(name.get_ref(), numbers);
    machine.map(Some).ok_or_else(|| {
        let known: Vec<String> = machine::list().into_iter().map(|(name, _)| name).collect();
        let error = source.error(name.span(), format!("no machine `{}`", name.get_ref()));
        error.allowed(known.join(", ")).near(name.get_ref(), known.iter().map(String::as_str))
    })
}

fn load(name: &str, numbers: Option<&Numbers>) -> Option<Machine> {
    let file = format!("machines/{}", base(name));
    let other = numbers.map(|numbers| numbers.of_file(&file));
    machine::load_with(name, &|number| other.as_ref().and_then(|other| other(number)))
}

/// Drive, name of the machine, and host of a variant: its own drive, that of its machine, then those of the file. A drive
/// that is not the machine's is on the machine that it was measured on.
pub(super) fn setting(
    source: &Source,
    file: &ExperimentFile,
    variant: Option<&VariantFile>,
    numbers: Option<&Numbers>,
) -> Result<(String, String, Host), ConfigError> {
    let own = variant.and_then(|variant| variant.machine.as_ref());
    let machine = named(source, own.or(file.machine.as_ref()), numbers)?;
    let of_file = file.drive.as_ref().filter(|_| own.is_none());
    let written = variant.and_then(|variant| variant.drive.as_ref()).or(of_file);
    let drive = match (written, &machine) {
        (Some(written), _) => {
            let drive = source.profile(written.get_ref());
            let at = || source.error(written.span(), "");
            profile::read(&drive).map_err(|error| drive_error(at(), &error))?;
            drive
        }
        (None, Some(machine)) => machine.drive.clone(),
        (None, None) => {
            let error = ConfigError::whole_file(source.path(), "no `machine` and no `drive`");
            return Err(error.allowed("a machine of profiles/machines, or a drive"));
        }
    };
    let machine = machine.filter(|machine| base(&machine.drive) == base(&drive));
    let machine = machine.unwrap_or_else(|| {
        load(machine::of_drive_or_any(&drive), numbers).expect("the list of machines names it")
    });
    let mut host = host::from_machine(&machine);
    let keys = match variant {
        Some(variant) => variant.host.or(&file.host),
        None => file.host.clone(),
    };
    apply(&mut host, &keys);
    let Some(numbers) = numbers else { return Ok((drive, machine.name, host)) };
    host.start_spread = numbers.start_spread();
    Ok((numbers.drive(&drive), machine.name, host))
}
