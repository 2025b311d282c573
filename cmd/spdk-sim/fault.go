package main

import (
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spdkgate/spdkgate/rpcschema"
	"github.com/spdkgate/spdkgate/rpcschema/jsonrpc"
	"github.com/spdkgate/spdkgate/rpcschema/spdktest"
)

var strikes = map[string]spdktest.Strike{
	"delay": spdktest.Nothing, "hang": spdktest.Hang, "close": spdktest.Close, "crash": spdktest.Crash, "fail": spdktest.Fail,
}

// parseFault parses METHOD:WHAT[,…], as the command's help describes it.
func parseFault(text string) (f spdktest.Fault, err error) {
	method, rest, ok := strings.Cut(text, ":")
	if !ok || method == "" {
		return f, errors.New("write it as METHOD:WHAT, such as bdev_lvol_create:crash")
	}
	if found, err := rpcschema.Default().Match(method); err != nil || len(found) == 0 {
		return f, fmt.Errorf("no method matches %s: see spdk-schema list", method)
	}
	if _, err := path.Match(method, ""); err != nil {
		return f, fmt.Errorf("%s: %w", method, err)
	}
	f.Method = method
	words := strings.Split(rest, ",")
	action, code, hasCode := strings.Cut(words[0], "=")
	if f.Do, ok = strikes[action]; !ok || hasCode && f.Do != spdktest.Fail {
		return f, fmt.Errorf("%q is unknown: use one of %s", words[0], strings.Join(slices.Sorted(maps.Keys(strikes)), ", "))
	}
	if hasCode {
		n, err := strconv.Atoi(code)
		if err != nil {
			return f, fmt.Errorf("%s: specify the code as a number, such as fail=-19", words[0])
		}
		f.Error = jsonrpc.Errorf(n, "simulated fault")
	}
	for _, word := range words[1:] {
		if err := setFault(&f, word); err != nil {
			return f, err
		}
	}
	if f.Do == spdktest.Nothing && f.Delay == 0 {
		return f, errors.New("a delay needs a duration, such as delay,delay=2s")
	}
	return f, nil
}

// setFault parses one of the words that follow METHOD:WHAT.
func setFault(f *spdktest.Fault, word string) (err error) {
	key, value, _ := strings.Cut(word, "=")
	switch {
	case word == "executed":
		f.Executed = true
	case key == "delay":
		if f.Delay, err = time.ParseDuration(value); err != nil || f.Delay <= 0 {
			return fmt.Errorf("%s: specify a duration with its unit, such as delay=200ms", word)
		}
	case key == "skip":
		if f.Skip, err = strconv.Atoi(value); err != nil || f.Skip < 0 {
			return fmt.Errorf("%s: specify the number of calls that pass first, such as skip=3", word)
		}
	case word == "times=all":
		f.Times = -1
	case key == "times":
		if f.Times, err = strconv.Atoi(value); err != nil || f.Times < 1 {
			return fmt.Errorf("%s: specify the number of calls that the fault affects, such as times=2, or times=all", word)
		}
	default:
		return fmt.Errorf("%q is unknown: use delay=, skip=, times= or executed", word)
	}
	return nil
}
