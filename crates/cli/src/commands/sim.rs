use crate::out::Failure;
pub(super) fn cast(_: &crate::args::SimCastArgs) -> Result<(), Failure> {
    Ok(())
}
pub(super) fn fuzz(_: &crate::args::SimFuzzArgs) -> Result<(), Failure> {
    Ok(())
}
