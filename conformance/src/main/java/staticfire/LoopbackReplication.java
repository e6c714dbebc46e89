package staticfire;

import java.io.IOException;
import java.lang.reflect.Field;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.ha.DefaultHAService;

/**
 * Replication that listens for slaves on loopback only: Apache's broker would on all interfaces, whatever its address is.
 * The broker finds it by the file in {@code META-INF/service}.
 */
public class LoopbackReplication extends DefaultHAService {
    @Override
    public void init(DefaultMessageStore store) throws IOException {
        super.init(store);
        try {
            Field listen = AcceptSocketService.class.getDeclaredField("socketAddressListen");
            listen.setAccessible(true);
            int port = ((InetSocketAddress) listen.get(acceptSocketService)).getPort();
            listen.set(acceptSocketService, new InetSocketAddress(InetAddress.getLoopbackAddress(), port));
        } catch (ReflectiveOperationException e) {
            throw new IOException("cannot choose where to listen for slaves", e);
        }
    }
}
