# Variables and functions of all stubs. Sourced by bash.
log=/var/log/spdk-proxy.log
pid=/run/spdk-proxy.pid
old=/run/rpc-http-proxy.pid
mkdir -p /var/log /run/spdk-proxy

unit_exists() { # unit_exists NAME
	case $1 in
	spdk_tgt | spdk_tgt.service | rpc-http-proxy | rpc-http-proxy.service) return 0 ;;
	*.*) [ -e "$REPOSITORY/systemd/$1" ] ;;
	*) [ -e "$REPOSITORY/systemd/$1.service" ] ;;
	esac || { echo "Unit $1 not found." >&2; return 5; }
}

ended() { # ended PIDFILE: ends the process, and waits for it
	[ -e "$1" ] || return 0
	kill "$(cat "$1")" 2>/dev/null || true
	# No process reaps it here, so it stays a zombie after its end.
	while grep -q '^State:.[^Z]' "/proc/$(cat "$1")/status" 2>/dev/null; do sleep 0.05; done
	rm -f "$1"
}

answers() { # answers PIDFILE: waits until the port is open
	for _ in $(seq 600); do
		(exec 3<>/dev/tcp/127.0.0.1/9009) 2>/dev/null && return 0
		kill -0 "$(cat "$1")" 2>/dev/null || break
		sleep 0.05
	done
	tail -n 5 /var/log/*.log >&2
	return 1
}

start_proxy() {
	ended $pid
	local given=/run/credentials/spdk-proxy.service
	rm -rf $given && mkdir -p $given
	for f in /etc/spdk-proxy/secrets/*; do [ ! -e "$f" ] || cp "$f" "$given/secrets_$(basename "$f")"; done
	CREDENTIALS_DIRECTORY=$given RUNTIME_DIRECTORY=/run/spdk-proxy STATE_DIRECTORY=/var/lib/spdk-proxy setsid spdk-proxy serve >>$log 2>&1 </dev/null &
	echo $! >$pid
	answers $pid
}

start_script() { # what the unit's drop-in says, or else a stand-in for the Python script
	ended $old
	local line
	line=$(sed -n 's/^ExecStart=\/usr\/bin\/\(..*\)/\1/p' /etc/systemd/system/rpc-http-proxy.service.d/*.conf 2>/dev/null || true)
	# shellcheck disable=SC2086 # words
	setsid ${line:-spdk-proxy 0.0.0.0 9009 stack OLD-PASSWORD -s /var/tmp/spdk.sock} >>/var/log/rpc-http-proxy.log 2>&1 </dev/null &
	echo $! >$old
	answers $old
}
