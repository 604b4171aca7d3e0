//! Colours and styles of pages and of files. `page.css` has those of pages, for a light and a dark theme.

/// Colours that the style sheet has for stacks, one after the other: classes `s0`, `s1`, ...
pub const STACKS: usize = 8;
/// Colours of lines and dots in files; those with a meaning come first.
pub const COLOURS: [&str; 6] = ["#d4380d", "#1677ff", "#8c8c8c", "#389e0d", "#722ed1", "#d48806"];

/// Styles of what is the same in all pictures.
#[derive(Clone, Copy, Debug)]
pub struct Look {
    /// Lines of a grid.
    pub grid: &'static str,
    /// Lines of axes; none where it is empty.
    pub axis: &'static str,
    /// Lines that say where a value is.
    pub mark: &'static str,
    /// Text.
    pub ink: &'static str,
    /// Text at axes.
    pub soft: &'static str,
}

/// In pages with the style sheet.
pub const PAGE: Look = Look {
    grid: "class=\"grid\"",
    axis: "",
    mark: "class=\"front\"",
    ink: "class=\"label\"",
    soft: "class=\"tick\"",
};
/// In files of their own.
pub const FILE: Look = Look {
    grid: "stroke=\"#e8e8e8\"",
    axis: "stroke=\"#8c8c8c\" fill=\"none\"",
    mark: "stroke=\"#262626\" fill=\"none\"",
    ink: "",
    soft: "fill=\"#595959\"",
};

/// The style of a shape in this colour.
pub fn fill(colour: &str) -> String {
    format!("fill=\"{colour}\"")
}

/// The style of a shape in a stack's colour, in pages.
pub fn stack(index: usize) -> String {
    format!("class=\"s{}\"", index % STACKS)
}
