package staticfire;

import org.apache.rocketmq.store.ha.DefaultHAService;

/**
 * Replication that is never started: Apache's broker would listen for slaves on all interfaces, whatever its address is,
 * and these tests stay on loopback. The broker finds it by the file in {@code META-INF/service}.
 */
public class NoReplication extends DefaultHAService {
    @Override
    public void start() {
    }

    @Override
    public void shutdown() {
    }
}
