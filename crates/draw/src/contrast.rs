//! Contrast of the pages' colours, by the rule of WCAG 2.1: 4.5 for text, 3 for what is drawn (level AA).

/// The colours of a style sheet: those of the light theme, and those of the dark one, which replace some.
fn themes(style: &str) -> [Vec<(String, [f64; 3])>; 2] {
    let (light, dark) =
        style.split_once("prefers-color-scheme: dark").expect("there is a dark theme");
    let dark = dark.split_once("\n}").expect("it ends").0;
    [light.split_once('}').expect("it ends").0, dark].map(|text| {
        let lines = text.split([';', '{', '}']).map(str::trim);
        let declarations = lines.filter_map(|line| line.strip_prefix("--"));
        let pairs = declarations.filter_map(|declaration| declaration.split_once(": #"));
        pairs.map(|(name, hex)| (name.to_owned(), channels(hex))).collect()
    })
}

/// Red, green and blue, from 0 to 1.
fn channels(hex: &str) -> [f64; 3] {
    let hex = match hex.len() {
        3 => hex.chars().flat_map(|digit| [digit, digit]).collect(),
        _ => hex.to_owned(),
    };
    [0, 2, 4]
        .map(|at| f64::from(u8::from_str_radix(&hex[at..at + 2], 16).expect("a colour")) / 255.0)
}

/// WCAG's relative luminance.
fn luminance(colour: [f64; 3]) -> f64 {
    let linear = colour.map(|channel| {
        if channel <= 0.04045 { channel / 12.92 } else { ((channel + 0.055) / 1.055).powf(2.4) }
    });
    0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
}

fn contrast(one: [f64; 3], other: [f64; 3]) -> f64 {
    let [one, other] = [one, other].map(luminance);
    (one.max(other) + 0.05) / (one.min(other) + 0.05)
}

/// Goal: everybody can read the pages. Method: each colour of text on the colours that it stands on, and each colour of bars and
/// lines on that of a card, in both themes.
#[test]
fn colours_have_contrast() {
    const TEXT: [(&str, &str); 9] = [
        ("ink", "card"),
        ("ink", "back"),
        ("ink", "warn-back"),
        ("soft", "card"),
        ("soft", "back"),
        ("good", "good-back"),
        ("bad", "bad-back"),
        ("info", "info-back"),
        ("mark", "card"),
    ];
    assert!((contrast([0.0; 3], [1.0; 3]) - 21.0).abs() < 1e-9);
    for (theme, colours) in ["light", "dark"].iter().zip(themes(crate::STYLE)) {
        let colour_of = |name: &str| {
            let found = colours.iter().find(|known| known.0 == name);
            found.unwrap_or_else(|| panic!("{theme}: no colour {name}")).1
        };
        for (text, back) in TEXT {
            let got = contrast(colour_of(text), colour_of(back));
            assert!(got >= 4.5, "{theme}: {text} on {back}: {got:.2}");
        }
        for number in 0..crate::STACKS {
            let got = contrast(colour_of(&format!("c{number}")), colour_of("card"));
            assert!(got >= 3.0, "{theme}: c{number} on card: {got:.2}");
        }
    }
}
