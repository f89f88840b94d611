//! `sluice demo`: this binary as a gateway, three backends, the load of the Kyma load test, and a table.

use std::net::SocketAddr;
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use sluice_load_test::demo::{self, DemoBackends, DemoOptions};
use sluice_load_test::subject::free_addr;
use sluice_net::server::ReadScheduler;

use crate::arguments::DemoArguments;
use crate::run;

const CONFIG_VARIABLE: &str = "SLUICE_DEMO_CONFIG";
const START_WITHIN: Duration = Duration::from_secs(10);

pub(crate) fn demo(arguments: &DemoArguments) -> Result<ExitCode> {
    run::runtime(None, &ReadScheduler::new())?.block_on(show(arguments))
}

async fn show(arguments: &DemoArguments) -> Result<ExitCode> {
    let backends = DemoBackends::start().await.context("cannot start the demonstration's backends")?;
    let (gateway, metrics) = (free_addr()?, free_addr()?);
    let config = backends.gateway_config(gateway, metrics);
    let seconds = arguments.seconds.as_secs();
    eprintln!(
        "A gateway with three pipelines: one backend healthy, one answering 70 % of requests with 503, one dead."
    );
    eprintln!("It is sent {} spans a second, of 40 attributes each, for {seconds} seconds.\n", arguments.rate);
    let process = Gateway::start(&config, gateway)?;
    let mut options = DemoOptions::new(gateway, metrics, process.0.id());
    options.spans_per_s = arguments.rate as f64;
    options.duration = arguments.seconds;
    let report = demo::run(&options, &backends).await?;
    println!("\n{}", report.to_markdown());
    Ok(ExitCode::SUCCESS)
}

/// The gateway's process, ended with the demonstration.
struct Gateway(Child);

impl Gateway {
    fn start(config: &str, address: SocketAddr) -> Result<Gateway> {
        let program = std::env::current_exe().context("cannot find this program's own file")?;
        let child = Command::new(program)
            .args(["run", "--drain-timeout", "0", "--config", &format!("env:{CONFIG_VARIABLE}")])
            .env(CONFIG_VARIABLE, config)
            // Its log would tell at length what the table says: that two backends are sick.
            .env("SLUICE_LOG", "off")
            .stdin(Stdio::null())
            .spawn()
            .context("cannot start the gateway")?;
        let mut gateway = Gateway(child);
        let deadline = Instant::now() + START_WITHIN;
        while std::net::TcpStream::connect(address).is_err() {
            if let Some(status) = gateway.0.try_wait()? {
                bail!("the gateway ended at its start: {status}");
            }
            if Instant::now() > deadline {
                bail!("the gateway does not listen on {address} after {START_WITHIN:?}");
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(gateway)
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
