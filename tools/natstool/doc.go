// Package natstool lets any service on NATS, in any language, offer tools to
// agents, and lets workers find and call them.
//
// A service in Go offers what implements [loop.Tool], for example by
// tools.Func:
//
//	s, err := natstool.Serve(nc, natstool.Config{Name: "weather", Version: "1.0.0"}, forecast)
//	…
//	defer s.Stop()
//
// A worker finds tools by name or pattern, and gives them to its agents:
//
//	d, err := natstool.Open(nc, nil)
//	…
//	list, missing := d.Tools("weather_*", "invoice")
//
// # The wire
//
// An offer is an endpoint of a NATS micro service whose metadata has the key
// [MetaTool]. So the tool is listed by `nats micro ls`, its calls are counted
// by `nats micro stats`, and load is spread over the service's instances by
// the endpoint's queue group. A call is a request to the endpoint's subject:
// the arguments as payload, the stable key and the deadline in headers. The
// answers go to the reply subject: updates, marked by [HeaderUpdate], then one
// result. docs/remote-tools.md has every word of it, for services that are not
// written in Go.
//
// # Trouble
//
// A call always ends in a result: when no service answers, when one vanishes
// in the middle, when the deadline passes. Such a result is an error result
// whose details hold a [Failure]; the agent reads it and goes on.
package natstool
