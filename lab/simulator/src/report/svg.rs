//! What all pictures share: text that is safe in them, and the frame of those that stand alone.

/// Text that is safe inside an element or a quoted attribute.
pub fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// A picture as a file of its own: dark on white in any theme, since a page shows it as an image.
pub fn picture_file(title: &str, (wide, high): (f64, f64), body: &str) -> String {
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {wide:.0} {high:.0}\" width=\"{wide:.0}\" \
         font-family=\"system-ui, sans-serif\" fill=\"#262626\">\n<title>{}</title>\n\
         <rect width=\"{wide:.0}\" height=\"{high:.0}\" fill=\"#ffffff\"/>\n{body}</svg>\n",
        escape(title)
    )
}
