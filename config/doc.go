// Package config reads the configuration of pi-worker and pi-cli. It is the
// only place that knows viper, files, environment variables and flags; the
// rest of the program gets the typed [Config], or parts of it, from the
// commands.
//
//	fs := pflag.NewFlagSet("pi-worker", pflag.ContinueOnError)
//	config.AddFlags(fs, config.ForWorker)
//	_ = fs.Parse(os.Args[1:])
//	cfg, err := config.Load(fs)
//
// # Where values come from
//
// Four layers, each over the one before:
//
//  1. the defaults of [Keys];
//  2. one YAML file: --config, else $PI_CONFIG, else ./pi-worker.yaml, else
//     $XDG_CONFIG_HOME/pi-worker/config.yaml (~/.config without the variable).
//     A file that was named must exist, the other two may be absent;
//  3. environment variables: PI_ and the key in capitals with underscores,
//     nats.ack_wait is PI_NATS_ACK_WAIT. An empty variable counts as absent.
//     NATS_URL counts for nats.url where PI_NATS_URL is absent;
//  4. flags, for the keys that have one.
//
// A key that does not exist is refused by name, with the nearest key that
// does. Everything that is wrong is reported at once: the error of [Load]
// joins one [*KeyError] for each trouble, with the key, the value, what is
// allowed and where the value came from.
//
// # Profiles
//
// `agents:` holds profiles by name, in lower case. A profile is a model, its
// endpoint and key, a system prompt, tools and limits. What a profile leaves
// out it takes from `defaults:`. The profile "default" always exists; it
// serves the prompts that name none, the flags --model, --base-url and --api
// change it, and OPENAI_BASE_URL counts for it as PI_AGENTS_DEFAULT_BASE_URL
// does. A key belongs to an endpoint: a profile with a base URL of its own
// takes neither key nor headers from `defaults:`, so that no key is sent to a
// server it was not meant for.
//
// A prompt picks a profile by name and may narrow it ([Profile.Narrow]); it
// never gets more than the profile allows.
//
// # Secrets
//
// Passwords and tokens are [Secret], which prints, marshals and logs as
// "***". Keys of model endpoints are not in the configuration at all: a
// profile names an environment variable or a file, read when it is needed
// ([Profile.APIKey]), so that a rotated file counts at once.
package config
