//! The first processor, as `/proc/cpuinfo` describes it.

use super::super::super::surroundings::Surroundings;
use super::arm;

#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Cpu {
    pub(super) vendor: String,
    pub(super) family: String,
    pub(super) model: String,
    pub(super) model_name: String,
    pub(super) stepping: i64,
    pub(super) cache_kib: i64,
}

/// Nothing if the kernel describes none.
pub(super) fn find(around: &Surroundings) -> Result<Option<Cpu>, String> {
    let proc = around.given("HOST_PROC").unwrap_or_else(|| "/proc".to_owned());
    let path = format!("{proc}/cpuinfo");
    let text = around.read_now(&path)?;
    let text = text.ok_or_else(|| format!("there is no {path}"))?;
    Ok(parse(&text))
}

fn parse(text: &str) -> Option<Cpu> {
    let mut found: Option<Cpu> = None;
    // Of all processors: some kernels say it once, at the head.
    let mut common_name = String::new();
    for line in text.lines() {
        let Some((key, value)) = line.split_once(':') else { continue };
        let (key, value) = (key.trim(), value.trim());
        if matches!(key, "processor" | "cpu number") {
            if found.is_some() {
                break;
            }
            found = Some(Cpu { model_name: common_name.clone(), ..Cpu::default() });
            continue;
        }
        if key == "Processor" {
            common_name = value.to_owned();
        }
        if key == "vendor_id" && value.contains("S390") {
            common_name = "S390".to_owned();
        }
        if let Some(cpu) = &mut found {
            cpu.take(key, value);
        }
    }
    found
}

impl Cpu {
    fn take(&mut self, key: &str, value: &str) {
        match key {
            "vendorId" | "vendor_id" => self.vendor = value.to_owned(),
            "mvendorid" => {
                if let Some(vendor) = hexadecimal(value).and_then(arm::risc_v_vendor) {
                    self.vendor = vendor.to_owned();
                }
            }
            "CPU implementer" => {
                if let Some(vendor) = hexadecimal(value).and_then(arm::vendor) {
                    self.vendor = vendor.to_owned();
                }
            }
            "cpu family" | "marchid" => self.family = value.to_owned(),
            "model" | "CPU part" | "mimpid" => {
                self.model = value.to_owned();
                if self.vendor == "ARM"
                    && let Some(part) = hexadecimal(value)
                {
                    self.model_name = arm::part(part).unwrap_or("Undefined").to_owned();
                }
            }
            "Model Name" | "model name" | "cpu" | "uarch" => {
                self.model_name = value.to_owned();
                if value.contains("POWER") {
                    self.model = value.split(' ').next().unwrap_or_default().to_owned();
                    self.family = "POWER".to_owned();
                    self.vendor = "IBM".to_owned();
                }
            }
            "stepping" | "CPU revision" => self.stepping = value.parse().unwrap_or(0),
            "revision" => {
                let number = value.split('.').next().unwrap_or_default();
                self.stepping = number.parse().unwrap_or(0);
            }
            "cache size" => {
                self.cache_kib = value.trim_end_matches(" KB").parse().unwrap_or(0);
            }
            _ => {}
        }
    }
}

fn hexadecimal(text: &str) -> Option<u32> {
    u32::from_str_radix(text.strip_prefix("0x")?, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Guarantee: of each kind of processor, the first is described as the Collector does it.
    #[test]
    fn the_first_processor_is_described() {
        let x86 = "processor\t: 0\nvendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 85\n\
                   model name\t: Xeon(R) @ 2.00GHz\nstepping\t: 3\ncache size\t: 39424 KB\n\n\
                   processor\t: 1\nvendor_id\t: Other\n";
        let arm = "processor\t: 0\nBogoMIPS\t: 243.75\nCPU implementer\t: 0x41\n\
                   CPU architecture: 8\nCPU part\t: 0xd0c\nCPU revision\t: 1\n";
        let power = "processor\t: 0\ncpu\t\t: POWER9 (architected)\nrevision\t: 2.2 (pvr 004e)\n";
        let cpu = |parts: [&str; 4], stepping, cache_kib| {
            let [vendor, family, model, model_name] = parts.map(str::to_owned);
            Some(Cpu { vendor, family, model, model_name, stepping, cache_kib })
        };
        let xeon = ["GenuineIntel", "6", "85", "Xeon(R) @ 2.00GHz"];
        assert_eq!(parse(x86), cpu(xeon, 3, 39424));
        assert_eq!(parse(arm), cpu(["ARM", "", "0xd0c", "Neoverse-N1"], 1, 0));
        assert_eq!(parse(power), cpu(["IBM", "POWER", "POWER9", "POWER9 (architected)"], 2, 0));
        let s390 = "vendor_id       : IBM/S390\n# processors    : 2\ncpu number      : 0\n";
        assert_eq!(parse(s390), cpu(["", "", "", "S390"], 0, 0));
        assert_eq!(parse("hello\n"), None);
    }
}
